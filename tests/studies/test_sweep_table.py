"""The table of a sweep: runs, means over seeds and folds, the best."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run

from graphfold.studies.sweep import SweepRun, write_table


def runs(monitor: str, *settings: tuple[str, float | None]) -> list[SweepRun]:
    """Runs of these overrides and values of the monitored metric."""
    return [
        SweepRun(
            number,
            dict(pair.split("=") for pair in words.split()),
            {monitor: value, monitor.replace("val/", "test/"): 2.0, "val/other": 1.0},
            monitor,
            is_less_better="rmse" in monitor,
        )
        for number, (words, value) in enumerate(settings)
    ]


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))


def test_means_are_taken_over_seeds_and_folds_alone(tmp_path: Path) -> None:
    settings = [("seed=1 lr=a x=0", 1.0), ("seed=2 lr=a x=0", 3.0), ("seed=1 lr=b x=0", 2.5)]
    settings.append(("seed=2 lr=b x=0", 2.5))
    text = write_table(runs("val/rmse", *settings), tmp_path)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["run", "seed", "lr", "val/rmse", "test/rmse"]
    assert lines[1] == ["0", "1", "a", "1", "2"]
    assert lines[5] == ["mean", "a", "2", "2"]
    assert lines[6] == ["deviation", "a", "1.41421", "0"]
    assert "best by val/rmse: lr=a (run mean), 2" in text
    rows = table(tmp_path)
    assert [row["run"] for row in rows] == ["0", "1", "2", "3", *["mean", "deviation"] * 2]
    assert rows[7]["val/rmse"] == "0.0"
    assert rows[0]["val/other"] == "1.0"


@pytest.mark.parametrize(("monitor", "number"), [("val/rmse", 0), ("val/accuracy", 1)])
def test_the_best_is_the_least_error_or_the_largest_score(
    monitor: str, number: int, tmp_path: Path
) -> None:
    text = write_table(runs(monitor, ("lr=a", 1.0), ("lr=b", 3.0), ("lr=c", None)), tmp_path)
    assert f"lr={'ab'[number]} (run {number})" in text
    assert "undefined" in text
    assert "mean" not in text


@pytest.mark.parametrize("key", ["seed", "data.seed", "data.fold"])
def test_no_seed_and_no_fold_is_the_best(key: str, tmp_path: Path) -> None:
    text = write_table(runs("val/rmse", (f"{key}=0", 1.0), (f"{key}=1", 3.0)), tmp_path)
    assert "best" not in text
    assert "mean" in text


def test_an_undefined_metric_has_no_mean(tmp_path: Path) -> None:
    write_table(runs("val/roc_auc", ("data.fold=0", 0.5), ("data.fold=1", None)), tmp_path)
    assert [row["val/roc_auc"] for row in table(tmp_path)] == ["0.5", "", "", ""]


def test_the_command_says_things_once_and_ends_with_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"data.cache_dir={tmp_path}/cache", "logger=none", f"hydra.sweep.dir={tmp_path}/s"]
    assert run("train", "-m", *listops("seed=1,2", "trainer.max_epochs=1"), *settings) == 0
    text = capsys.readouterr().out
    assert text.count("threads: ") == 1
    assert text.count("64 records: ") == 1
    assert text.endswith(f"all metrics: {tmp_path}/s/sweep.csv\n")
    values = [read_json(tmp_path / "s" / n / "metrics.json")["test/accuracy"] for n in "01"]
    rows = table(tmp_path / "s")
    assert [float(row["test/accuracy"]) for row in rows[:2]] == values
    assert float(rows[2]["test/accuracy"]) == pytest.approx(sum(values) / 2)
