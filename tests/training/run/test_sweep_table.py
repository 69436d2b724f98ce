"""The table of a sweep: runs, means over seeds and folds."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from training.tiny_runs import QUICK, read_json, run, write_molecules

from graphfold.training.run.sweep import RECORDS, report_sweep


def table(folder: Path, *runs: tuple[str, float | None]) -> list[dict[str, str]]:
    """The rows of sweep.csv after runs of these overrides and values."""
    (folder / RECORDS).mkdir()
    for number, (words, value) in enumerate(runs):
        record = {
            "run": number,
            "overrides": dict(pair.split("=") for pair in words.split()),
            "metrics": {"val/rmse": value, "test/rmse": 2.0, "val/other": 1.0},
            "monitor": "val/rmse",
        }
        (folder / RECORDS / f"{number}.json").write_text(json.dumps(record))
    assert not report_sweep(folder)
    return list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))


def test_means_are_taken_over_seeds_and_folds_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [("seed=1 lr=a x=0", 1.0), ("seed=2 lr=a x=0", 3.0), ("seed=1 lr=b x=0", 2.5)]
    rows = table(tmp_path, *runs, ("seed=2 lr=b x=0", 2.5))
    assert [row["run"] for row in rows] == ["0", "1", "2", "3", *["mean", "deviation"] * 2]
    assert rows[7]["val/rmse"] == "0.0"
    assert rows[0]["val/other"] == "1.0"
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["run", "seed", "lr", "val/rmse", "test/rmse"]
    assert lines[1] == ["0", "1", "a", "1", "2"]
    assert lines[5] == ["mean", "a", "2", "2"]
    assert lines[6] == ["deviation", "a", "1.41421", "0"]
    assert lines[-1] == ["all", "metrics:", f"{tmp_path}/sweep.csv"]


def test_an_undefined_metric_has_no_mean(tmp_path: Path) -> None:
    rows = table(tmp_path, ("data.fold=0", 0.5), ("data.fold=1", None))
    assert [row["val/rmse"] for row in rows] == ["0.5", "", "", ""]


def test_every_fold_is_the_test_part_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    molecules = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={molecules}", "data.target_columns=[c]", *QUICK]
    words += ["data.split=kfold", "data.num_folds=3", "data.fold=range(0,3)", "logger=none"]
    places = [f"data.cache_dir={tmp_path}/cache", f"hydra.sweep.dir={tmp_path}/s"]
    assert run("train", "-m", *words, *places) == 0
    assert capsys.readouterr().out.count("threads: ") == 1
    folders = [tmp_path / "s" / str(fold) for fold in range(3)]
    predicted = [
        row
        for folder in folders
        for row in csv.DictReader((folder / "predictions.csv").read_text().splitlines())
    ]
    tested = [int(row["record"]) for row in predicted if row["part"] == "test"]
    assert sorted(tested) == list(range(26))  # each of the 30 rows with a c, once
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").read_text().splitlines()))
    values = [read_json(folder / "metrics.json")["test/rmse"] for folder in folders]
    assert [float(row["test/rmse"]) for row in rows[:3]] == values
    assert float(rows[3]["test/rmse"]) == pytest.approx(sum(values) / 3)
