"""The script that tables the accuracy of models."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from benchmarks.accuracy import table


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with two rows; a stand-in for each run has the error seed / 10."""
    rows = (
        table.Row("a", "random", "net", ("rmse",), "experiment=net", "other 0.5"),
        table.Row("b", "g", "forest", ("roc_auc", "rmse"), "experiment=f", variants=("v=1", "v=2")),
    )
    monkeypatch.setitem(table.TOPICS, "molecules", rows)
    calls: list[str] = []

    def train(row: object, seed: int, variant: str, overrides: list[str]) -> dict[str, object]:
        calls.append(f"{seed}{variant}")
        found = {
            "values": dict.fromkeys(("rmse", "roc_auc"), seed / 10),
            "seconds": 7,
            "examples": 70 if variant == "" else None,
            "parameters": 1234,
        }
        key: dict[str, object] = table.key(row, seed, variant)
        return {**key, **found}

    monkeypatch.setattr(table, "train", train)
    monkeypatch.setattr(table, "calls", calls, raising=False)
    return table


def test_the_table_stands_between_the_marks_of_the_page(script, tmp_path):
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"before\n{script.BEGIN}\nold\n{script.END}\nafter\n")
    words = ["molecules", "--page", str(page), "--results", str(results)]
    script.main([*words, "--only", "b", "--seeds", "1"])
    assert script.calls == ["1v=1", "1v=2"]
    script.main([*words, "--seeds", "1", "3"])
    assert script.calls[2:] == ["1", "3", "3v=1", "3v=2"]  # what is there is not trained again
    lines = page.read_text().splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == (
        "before",
        script.BEGIN,
        script.END,
        "after",
    )
    assert lines[4:6] == [
        "| a | random | `net` | RMSE 0.200 ± 0.141 | 2 | 7 | 10 | 1,234 | other 0.5 |",
        "| b | g | `forest` | ROC-AUC 0.200 ± 0.141; RMSE 0.200 ± 0.141 | 4 | 7 |  | 1,234 |  |",
    ]


def test_what_is_not_measured_is_said(script, tmp_path):
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"runs": []}))
    page = tmp_path / "page.md"
    page.write_text(f"{script.BEGIN}{script.END}")
    script.main(["molecules", "--page", str(page), "--results", str(results), "--seeds"])
    assert "| a | random | `net` | not measured |" in page.read_text()
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the lines"):
        script.main(["molecules", "--page", str(page), "--results", str(results), "--seeds"])
