"""docs/benchmarks.md out of JSON files."""

from __future__ import annotations

import json
import re
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import run

from graphfold.bench.page import INTRODUCTION, render
from graphfold.bench.run import BENCHMARKS

FACTS = {
    "cpu": "a CPU",
    "isa": "avx2",
    "torch": "2.9",
    "products": "default",
    "threads": 1,
    "spread": 0.0,
}


def row(variant: str, speed: float, benchmark: str = "treefc", **more: Any) -> dict[str, Any]:
    setting = {"shape": "random", "batch_size": 32, "hidden_size": 256, "phase": "inference"}
    figures = {"variant": variant, "examples_per_second": speed, "ratio": 1.0}
    return {"benchmark": benchmark, **setting, **figures, **FACTS, **more}


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_line_per_setting_and_a_column_per_variant(tmp_path: Path) -> None:
    rows = [
        row("graphfold", 1500.4),
        row("product_floor", 2000),
        row("graphfold", 9, phase="train"),
    ]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert (
        "| shape | hidden | batch | phase | graphfold | product_floor | of the products |" in page
    )
    assert "| random | 256 | 32 | inference | 1,500 | 2,000 | 75% |" in page
    assert "| random | 256 | 32 | train | 9 |  |  |" in page
    assert "Measured on: a CPU, avx2, torch 2.9, default products." in page
    assert "67 GFLOP/s" in page  # 2,000 trees/s x 127 nodes x 2 x 512 x 256


def test_the_share_of_the_products_is_of_the_same_plan(tmp_path: Path) -> None:
    speeds = {"graphfold": 6, "every_node": 3, "product_floor": 8, "product_floor_every_node": 4.5}
    rows = [row(variant, speed) for variant, speed in speeds.items()]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert "| of the products | every_node of its products |" in page
    assert page.splitlines()[-1].endswith("| 75% | 67% |")


def test_what_it_measures_stands_above_its_figures(tmp_path: Path) -> None:
    rows = [row("graphfold", 5, "sst"), row("graphfold", 4, "sst_epoch", seconds_per_epoch=2.5)]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert page.index("## sst\n\nBinary Tree-LSTM") < page.index(
        "sst, 1 thread, avx2, default products:"
    )
    assert "sst_epoch, 1 thread, avx2, default products:" in page
    assert "| seconds per epoch |" in page
    assert "```sh\ngraphfold bench sst --batch-size 25,256\n```" in page
    assert "## treefc" not in page


@pytest.mark.parametrize("key", ["threads", "isa", "products", "cpu", "torch"])
def test_other_circumstances_do_not_share_a_table(key: str, tmp_path: Path) -> None:
    other: Any = 2 if key == "threads" else "other"
    rows = [row("graphfold", 1111), row("graphfold", 2222, **{key: other})]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert page.count("| shape | hidden | batch | phase | graphfold |") == 2
    assert "| 1,111 |" in page
    assert "| 2,222 |" in page


def test_words_of_a_row_are_its_setting_and_numbers_its_figures(tmp_path: Path) -> None:
    rows = [row("graphfold", 1, "kernels", reduction=kind, rows=8) for kind in ("sum", "max")]
    page = render([write(tmp_path / "a.json", rows)], BENCHMARKS)
    assert "| reduction | shape | hidden | batch | phase | graphfold | rows |" in page
    assert "| sum | random | 256 | 32 | inference | 1 | 8 |" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[3]", "was not written by graphfold bench"),
        ("[]", "was not written by graphfold bench"),
        ('{"a": 1}', "was not written by graphfold bench"),
    ],
)
def test_other_files_are_refused(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert run("bench", "page", path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ")
    assert message in error


def test_no_file_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "page") == 2
    assert "Name at least one" in capsys.readouterr().err


def documented(name: str) -> str:
    """What a benchmark's own file says of it."""
    return cleandoc(import_module(BENCHMARKS[name]).__doc__ or "")


def variant_lines(text: str) -> dict[str, str]:
    """Variant -> what the list of a docstring says of it."""
    return dict(re.findall(r"^- `(\w+)`(.*(?:\n  .*)*)", text, flags=re.M))


def test_the_page_in_the_docs_was_generated() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.startswith(INTRODUCTION)
    for name in re.findall(r"^## (\w+)$", page, flags=re.M):
        what, *_ = documented(name).split("\n\n    graphfold bench")
        assert what in page, name


@pytest.mark.parametrize(
    "name", ["treefc", "sst", "sequence", "molecules", "blocks", "memory", "train", "predict"]
)
def test_every_variant_says_whether_it_shares(name: str) -> None:
    lines = variant_lines(documented(name))
    assert "graphfold" in lines
    for variant, text in lines.items():
        words = " ".join(text.split()).rstrip(";.")
        assert words.endswith(("; equal nodes once", "; every node")), variant


def test_figures_of_other_machines_are_not_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert not re.search(r"Recorded earlier|DyNet|V100", page)
