"""report.html: one page with everything in it."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from training.tiny_runs import run, train, write_corpora, write_molecules

SMALL = ["model.hidden_size=8", "model.run=eager", "trainer.max_epochs=2", "data.batch_size=8"]


class Page(HTMLParser):
    """Tags, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]


def page_of(folder: Path) -> tuple[str, Page]:
    text = (folder / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_a_page_of_trees(tmp_path: Path) -> None:
    root = write_corpora(tmp_path / "corpora")
    folder = train(
        tmp_path / "run", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL, draws=True
    )
    text, page = page_of(folder)
    assert "<h1>sst_tree_lstm</h1>" in text
    assert 'class="tree"' in text
    assert "<td>root_accuracy</td>" in text
    assert "<td>coverage</td>" not in text  # of 1
    assert "best epoch" in text
    assert page.tags.count("figure") == 8
    assert not [link for link in page.links if not link.startswith(("#", "data:"))]
    assert not re.search(r"url\((?!#)", text)
    for drawing in re.findall(r'<svg[^>]*class="tree".*?</svg>', text):
        ElementTree.fromstring(drawing)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_page_of_molecules_names_targets_as_text(task: str, tmp_path: Path) -> None:
    table = write_molecules(tmp_path / "m.csv", num_rows=60)
    column = "<script>alert(1)</script>"
    header = {"regression": "c", "classification": "active"}[task]
    table.write_text(table.read_text().replace(f",{header}", f",{column}", 1))
    folder = train(
        tmp_path / "run", "data=smiles", f"data.path={table}", f"data.target_columns=['{column}']",
        f"data.task={task}", *SMALL, draws=True,
    )  # fmt: skip
    text, page = page_of(folder)
    assert page.tags.count("figure") == 6  # the test part has six
    assert "measured" in text
    assert ("<th>recall</th>" in text) == (task == "classification")
    assert "script" not in page.tags
    assert "&lt;script&gt;" in text
    assert "<td>mse</td>" not in text


def test_a_system_that_draws_no_molecules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without libXrender, as in small containers, the run ends and its page names the library."""
    monkeypatch.setitem(sys.modules, "rdkit.Chem.Draw", None)
    table = write_molecules(tmp_path / "m.csv", num_rows=60)
    folder = train(
        tmp_path / "run",
        "data=smiles",
        f"data.path={table}",
        "data.target_columns=[c]",
        *SMALL,
        draws=True,
    )
    text, page = page_of(folder)
    assert "molecules cannot be drawn here" in text
    assert "install libxrender1" in text
    assert "figure" not in page.tags
    assert run("draw", folder, table, "--output", tmp_path / "drawings", draws=True) == 2
    assert "error: molecules cannot be drawn here" in capsys.readouterr().err
