"""The table of accuracy by depth, with a stand-in for the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_script import load_script

import graphfold

LINES = [
    "7\t7",
    "4\t( ( ( [MAX 2 ) 4 ) ] )",
    "2\t( ( ( ( [MIN ( ( ( [SM 9 ) 3 ) ] ) ) 7 ) 5 ) ] )",
    "1\t( ( ( [SM 9 ) 2 ) ] )",
]


class AlwaysFour:
    """A model that answers 4."""

    def predict(self, lines: list[str]) -> list[dict[str, int]]:
        return [{"prediction": 4} for _ in lines]


def test_the_table_has_a_row_for_each_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("\n".join(LINES) + "\n")
    monkeypatch.setattr(graphfold, "load", lambda run: AlwaysFour())
    load_script("listops_depth", monkeypatch).main(str(path), "runs/four")
    assert capsys.readouterr().out.splitlines() == [
        "| depth | expressions | four |",
        "|---|---|---|",
        "| 0 | 1 | 0.0 |",
        "| 1 | 2 | 50.0 |",
        "| 2 | 1 | 0.0 |",
    ]
