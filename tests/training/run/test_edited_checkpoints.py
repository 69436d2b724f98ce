"""Checkpoints whose parts are valid, but not those of a run, are refused before they are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import QUICK, run, train, write_molecules

TARGET = "data.target_columns=['a b']"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_molecules(tmp_path_factory.mktemp("edited") / "t.csv")


@pytest.fixture(scope="module")
def content(table: Path) -> dict[str, Any]:
    own = ["data=smiles", *QUICK, f"data.path={table}", TARGET]
    path = train(table.parent / "run", *own) / "checkpoints" / "best.ckpt"
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


#: In place of a key that is taken away.
GONE = object()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("split", {"parts": 3}),
        ("split", {"parts": "012"}),
        ("split", {"parts": 30 * "3"}),
        ("split", {"parts": 30 * "é"}),
        ("split", {"files": 3}),
        ("split", {"files": [{"size": 1}]}),
        ("spec", {"source": 1}),
        ("spec", {"scalers": {"a b": {"mean": "x"}}}),
        ("calibration", {"level": 0.9}),
        (
            "calibration",
            {"level": 0.9, "count": 9, "quantile": torch.ones(3), "smoothing": torch.ones(3)},
        ),
        ("state_dict", {"targets.0.counts": torch.zeros(1)}),
        ("state_dict", {"targets.0.counts": None}),
    ],
)
def test_a_changed_part_is_told(
    content: dict[str, Any],
    table: Path,
    part: str,
    change: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = content[part]
    is_json = isinstance(own, str)
    changed = {**(json.loads(own) if is_json else own), **change}
    changed = {name: value for name, value in changed.items() if value is not GONE}
    _refuse({**content, part: json.dumps(changed) if is_json else changed}, table, tmp_path, capsys)


@pytest.mark.parametrize("part", ["config", "spec", "split", "training_records", "calibration"])
@pytest.mark.parametrize("value", [3, "[]", None, [1]])
def test_a_part_of_another_kind_is_told(
    content: dict[str, Any],
    table: Path,
    part: str,
    value: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _refuse({**content, part: value}, table, tmp_path, capsys)


def _refuse(
    content: dict[str, Any], table: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "edited.ckpt"
    torch.save(content, path)
    assert run("evaluate", path, "--set", f"path={table}") == 2
    error = capsys.readouterr().err
    assert "edited.ckpt: " in error or "the split of the run" in error
