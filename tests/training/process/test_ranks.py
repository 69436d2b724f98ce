"""Processes that torchrun or Lightning starts share one run folder; the first one writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from training.tiny_runs import listops, read_json, run, write_molecules

from graphfold.errors import ConfigError
from graphfold.training.process.ranks import (
    TORCHRUN,
    is_first,
    printing_once,
    rank,
    trainer_settings,
)
from graphfold.training.run.run_folder import RunFolder


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 1),  # Lightning's own processes
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),  # torchrun on the third machine
        ({"RANK": "0", "LOCAL_RANK": "0"}, 0),
        ({"RANK": "x"}, 0),
    ],
)
def test_the_number_of_a_process(
    environment: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank() == number
    assert is_first() is (number == 0)


def test_devices_and_strategy_are_those_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trainer_settings({"devices": 1}) == {"devices": 1, "strategy": "auto"}
    assert trainer_settings({"devices": 2}) == {"devices": 2, "strategy": "ddp_spawn"}
    own = {"devices": 2, "strategy": "ddp"}
    assert trainer_settings(own) == own
    for name, value in {TORCHRUN: "x", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    wanted = {"devices": 2, "num_nodes": 3, "strategy": "ddp"}
    assert trainer_settings({"devices": 1}) == wanted
    assert trainer_settings({"devices": 2}) == wanted
    with pytest.raises(ConfigError, match="devices is 3, but torchrun has started 2 processes"):
        trainer_settings({"devices": 3})


def test_a_further_process_takes_no_lock_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        monkeypatch.setenv("RANK", "1")
        with folder.lock(), printing_once():
            print("twice")
        monkeypatch.delenv("RANK")
        with printing_once():
            print("once")
        with pytest.raises(ConfigError, match="is training in this folder"), folder.lock():
            pass
    assert capsys.readouterr().out == "once\n"


def test_a_model_that_is_fitted_at_once_is_fitted_by_the_first_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_molecules(tmp_path / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=[c]", "model=kernel"]
    words += ["data.num_workers=0", "logger=none", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setenv("RANK", "1")
    assert run("train", *words) == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # processes that load torch: 10 s each
@pytest.mark.parametrize("way", ["torchrun", "strategy"])
def test_two_processes_train_one_run(way: str, tmp_path: Path) -> None:
    folders = {}
    for name, program, more in (
        ("spawned", ["-m", "graphfold"], ["trainer.devices=2"]),
        ("torchrun", ["-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "graphfold"], []),
        ("strategy", ["-m", "graphfold"], ["trainer.devices=2", "+trainer.strategy=ddp"]),
    ):
        if name not in ("spawned", way):
            continue
        folders[name] = tmp_path / name
        words = [*listops("trainer.max_epochs=1"), "logger=none", "data.num_workers=0", *more]
        words += [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={folders[name]}"]
        done = subprocess.run(
            [sys.executable, *program, "train", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("epoch 1/1") == 1
        assert done.stdout.count("report: ") == 1
        assert not list(tmp_path.rglob(".lock"))
    metrics = [read_json(folder / "metrics.json") for folder in folders.values()]
    assert metrics[0] == metrics[1]
