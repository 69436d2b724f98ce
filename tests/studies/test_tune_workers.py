"""Several workers of one search: processes that share a database."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
import pytest
from training.launches import BY_SRUN, set_environment
from training.tiny_runs import run, write_molecules

from graphfold.studies import tune_study

#: `graphfold tune` with a formula in the place of trainings, which notes when one begins.
WORKER = """
import sys, time
from pathlib import Path
from graphfold.cli import main
from graphfold.studies import tune_study

def run_trial(trial, config, folder):
    folder.mkdir(parents=True)
    trial.report(1.0, 1)
    time.sleep(float(sys.argv[1]))
    return config.mapping["optimizer"]["lr"]

tune_study.run_trial = run_trial
sys.exit(main(["tune", *sys.argv[2:]]))
"""


def words(folder: Path, *more: str) -> list[str]:
    table = folder / "m.csv"
    if not table.exists():
        write_molecules(table)
    return [
        *("data=smiles", f"data.path={table}", "data.target_columns=[c]", "logger=none"),
        *(f"data.cache_dir={folder}/cache", f"hydra.run.dir={folder}/t", "data.num_workers=0"),
        *("model.hidden_size=4", "optimizer.lr=interval(0.1,0.9)"),
        *(f"tune.storage=sqlite:///{folder}/base.db", "tune.heartbeat=1", *more),
    ]


def start(seconds: float, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(seconds), *overrides],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trials(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "t" / "trials.csv").read_text().splitlines()))


@pytest.mark.slow
def test_workers_share_the_trials_of_a_search(tmp_path: Path) -> None:
    search = words(tmp_path, "tune.trials=8")
    workers = [start(0.5, *search) for _ in range(2)]
    outputs = [worker.communicate(timeout=300) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert [errors for _, errors in outputs] == ["", ""]
    lines = [re.findall(r"^\[(\d)/8\] optimizer.lr=", text, re.MULTILINE) for text, _ in outputs]
    assert sorted(lines[0] + lines[1]) == [*"12345678"]
    assert lines[0]
    assert lines[1]
    rows = trials(tmp_path)
    assert [row["state"] for row in rows] == ["finished"] * 8
    assert len({row["optimizer.lr"] for row in rows}) == 8
    assert len([*(tmp_path / "t" / "trials").iterdir()]) == 8
    assert (tmp_path / "t" / "configs" / "experiment" / "best.yaml").is_file()
    for text, _ in outputs:
        assert "8 trials: 8 finished, 0 stopped, 0 failed" in text


@pytest.mark.slow
def test_the_trial_of_a_killed_worker_is_tried_anew(tmp_path: Path) -> None:
    search = words(tmp_path, "tune.trials=3")
    killed = start(1000, *search)
    while not (tmp_path / "t" / "trials" / "0").exists():
        assert killed.poll() is None
        time.sleep(0.05)
    other = start(0.1, *search)
    while not (tmp_path / "t" / "trials" / "1").exists():
        assert other.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    text, errors = other.communicate(timeout=300)
    assert (other.returncode, errors) == (0, "")
    assert text.count("trial 0: its worker has given no sign of life for 2 s. The values are") == 1
    rows = trials(tmp_path)
    assert [row["state"] for row in rows] == ["interrupted"] + ["finished"] * 3
    assert rows[3]["optimizer.lr"] == rows[0]["optimizer.lr"]
    assert "3 trials: 3 finished, 0 stopped, 0 failed" in text


def formula(trial: optuna.Trial, config: Any, folder: Path) -> float:
    return float(config.mapping["optimizer"]["lr"])


def test_a_worker_joins_by_resume_and_refuses_another_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune_study, "run_trial", formula)
    assert run("tune", *words(tmp_path, "tune.trials=2")) == 0
    assert f"study 'smiles_dmpnn' of sqlite:///{tmp_path}/base.db" in capsys.readouterr().out
    assert run("tune", *words(tmp_path, "tune.trials=3")) == 0
    assert run("tune", f"resume={tmp_path}/t", "tune.trials=4") == 0
    assert [row["state"] for row in trials(tmp_path)] == ["finished"] * 4
    capsys.readouterr()
    other = ["model.hidden_size=5", f"hydra.run.dir={tmp_path}/u"]
    assert run("tune", *words(tmp_path, *other)) == 2
    assert "has a study 'smiles_dmpnn' of another search: overrides differ. Set tune.study" in (
        capsys.readouterr().err
    )
    assert run("tune", *words(tmp_path, *other, "tune.study=second", "tune.trials=1")) == 0
    base = f"sqlite:///{tmp_path}/base.db"
    assert sorted(optuna.get_all_study_names(base)) == ["second", "smiles_dmpnn"]
    elsewhere = f"tune.storage=sqlite:///{tmp_path}/other.db"
    assert run("tune", *words(tmp_path, elsewhere)) == 2
    assert "t holds a search. Continue it with resume=" in capsys.readouterr().err


def test_a_trial_that_another_worker_began_before_is_none_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers may see at the same time that one trial is lacking."""
    monkeypatch.setattr(tune_study, "run_trial", formula)
    counts = iter([1, 2, 3, 3, 3, 3])
    assert run("tune", *words(tmp_path, "tune.trials=2")) == 0
    capsys.readouterr()
    real = tune_study.counted
    with mock.patch.object(tune_study, "counted", side_effect=lambda s: real(s)[: next(counts)]):
        run("tune", *words(tmp_path, "tune.trials=2"))
    assert "[2/2]" not in capsys.readouterr().out
    assert [row["state"] for row in trials(tmp_path)] == ["finished"] * 2


def test_a_late_result_of_a_trial_that_was_given_up_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(trial: optuna.Trial, config: Any, folder: Path) -> float:
        if trial.number == 0:
            trial.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return 1.0

    monkeypatch.setattr(tune_study, "run_trial", late)
    assert run("tune", *words(tmp_path, "tune.trials=1")) == 0
    assert "[1/1] came too late: other workers had given up trial 0." in capsys.readouterr().out
    assert [row["state"] for row in trials(tmp_path)] == ["interrupted", "finished"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("base.db", "tune.storage is 'base.db', but it must be the address of a database"),
        ("'sqlite://'", "in the memory of one process, which no other worker can share"),
        ("sqlite:////no/such/base.db", "sqlite:////no/such/base.db: cannot be read as the trials"),
        (
            "postgresql+psycopg9://me:secret@host/base",
            "postgresql+psycopg9://me:***@host/base: cannot be read as the trials of this search "
            "(NoSuchModuleError",
        ),
    ],
)
def test_wrong_addresses_are_told(
    address: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *words(tmp_path, f"tune.storage={address}")) == 2
    assert message in capsys.readouterr().err


def test_tasks_of_srun_are_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune_study, "run_trial", formula)
    set_environment(monkeypatch, BY_SRUN)
    assert run("tune", *words(tmp_path, "tune.storage=null")) == 2
    assert "srun has started 5 workers, which share a search by its database. Set tune.storage" in (
        capsys.readouterr().err
    )
    set_environment(monkeypatch, BY_SRUN)
    assert run("tune", *words(tmp_path, "tune.trials=1")) == 0
    assert "[1/1]" in capsys.readouterr().out
