"""--all-folds: a run for every fold of a split."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from training.tiny_runs import run, write_molecules


def words(folder: Path, *more: str) -> list[str]:
    table = write_molecules(folder / "m.csv")
    own = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "trainer.max_epochs=1"]
    small = ["model.hidden_size=4", "model.fuse=false", "logger=none"]
    small += [f"data.cache_dir={folder}/cache"]
    return [*own, *small, f"hydra.sweep.dir={folder}/s", *more]


def test_every_fold_is_run_and_the_table_has_the_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folds = ["data.split=repeated_kfold", "data.num_repeats=1", "data.num_folds=3"]
    grouped = [*folds, "data.groups=molecule"]
    assert run("train", "--all-folds", *words(tmp_path, *grouped)) == 0
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == ["0", "1", "2", "mean", "deviation"]
    assert [row["data.fold"] for row in rows[:3]] == ["0", "1", "2"]
    output = capsys.readouterr()
    assert "(repeated_kfold split)" in output.out
    assert "drawn at random are val, to choose and calibrate the model by: 11%" in output.out
    assert "best by" not in output.out
    assert "records of val or test hold" not in output.err
    folders = [tmp_path / "s" / str(fold) for fold in range(3)]
    tested = [row["record"] for of in folders for row in predicted(of) if row["part"] == "test"]
    assert sorted(map(int, tested)) == list(range(26))  # each of the 30 rows with a c, once


def test_a_model_that_chooses_nothing_may_have_all_other_folds(tmp_path: Path) -> None:
    own = words(tmp_path, "data.split=kfold", "data.fractions=[0.8,0,0.2]", "data.num_folds=3")
    own += ["calibration.method=none"]
    assert run("train", "--all-folds", *own) == 0
    rows = list(csv.DictReader((tmp_path / "s" / "0" / "split.csv").read_text().splitlines()))
    assert {row["part"] for row in rows} == {"train", "test"}
    assert sum(row["part"] == "train" for row in rows) == 17  # of 26 in three folds


def predicted(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["data.split=random"], "needs a split into folds, but data.split is 'random'. Add"),
        (["data.split=kfold", "data.fold=1"], "runs every fold, but data.fold names one"),
        (["data.split=kfold", "data.num_folds=1"], "num_folds is 1. Ask for at least 2"),
    ],
)
def test_splits_without_folds(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("train", "--all-folds", *words(tmp_path, *more))
    assert message in capsys.readouterr().err
    assert code in (1, 2)


def test_a_molecule_on_both_sides_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"hydra.run.dir={tmp_path}/r"
    assert run("train", *words(tmp_path, folder)) == 0
    assert "warning: " in (told := capsys.readouterr().err)
    assert "records of val or test hold molecules that train has too" in told
    assert "hold molecules that train has too" in (tmp_path / "r" / "report.html").read_text()
