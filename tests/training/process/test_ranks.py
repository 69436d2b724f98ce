"""Processes that torchrun starts share one run folder; the first one writes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
from training.launches import BY_TORCHRUN, in_two_processes
from training.tiny_runs import listops, read_json

import graphfold
from graphfold.errors import ConfigError
from graphfold.training.process.launch import is_first, num_processes, rank
from graphfold.training.process.quiet import printing_once
from graphfold.training.process.ranks import (
    add_up,
    gather_objects,
    joined,
    own_device,
    share_buffers,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.trainer import Trainer


def test_the_number_of_processes_is_that_of_torchrun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (num_processes(1), rank(), is_first()) == (1, 0, True)
    with pytest.raises(ConfigError, match=r"devices is 2, .* by torchrun --nproc-per-node=2"):
        graphfold.train(listops("trainer.devices=2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for name, value in BY_TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert (num_processes(1), num_processes(2), rank(), is_first()) == (6, 6, 5, False)
    with pytest.raises(ConfigError, match="devices is 3, but torchrun has started 2 processes"):
        num_processes(3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device(Trainer(accelerator="gpu")) == torch.device("cuda", 1)


def talk(folder: Path) -> None:
    number = rank()
    with joined(Trainer(accelerator="cpu")):
        norm = torch.nn.BatchNorm1d(2)
        norm.running_mean.fill_(number + 5)  # type: ignore[union-attr]
        share_buffers(norm)
        facts = {
            "sum": add_up(number + 1.0, torch.device("cpu")),
            "all": gather_objects(f"process {number}"),
            "buffer": norm.running_mean.tolist(),  # type: ignore[union-attr]
        }
    (folder / f"{number}.json").write_text(json.dumps(facts))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_add_up_and_tell_each_other(tmp_path: Path) -> None:
    in_two_processes(talk, tmp_path)
    wanted = {"sum": 3.0, "all": ["process 0", "process 1"], "buffer": [5.0, 5.0]}
    assert [read_json(tmp_path / f"{number}.json") for number in range(2)] == [wanted, wanted]


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_signal_ends_a_run_that_can_be_continued(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*listops("trainer.max_epochs=1000"), "logger=none", "data.num_workers=0"]
    words += [f"data.cache_dir={tmp_path}/cache", f"hydra.run.dir={folder}"]
    # A shell has its programs in the background ignore SIGINT, and theirs inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "graphfold", "train", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    last = folder / "checkpoints" / "last.ckpt"
    while not last.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"interrupted. Continue with: graphfold train resume={folder}" in errors
    assert "Traceback" not in errors
    assert not (folder / ".lock").exists()


@pytest.mark.filterwarnings("error")
def test_a_further_process_takes_no_lock_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        for key, value in BY_TORCHRUN.items():
            monkeypatch.setenv(key, value)
        with folder.lock(), printing_once():
            print("twice")
            warnings.warn("twice", stacklevel=1)
        with pytest.raises(SystemExit) as end, printing_once():
            raise ConfigError("twice")
        assert end.value.code == 2
        monkeypatch.delenv("TORCHELASTIC_RUN_ID")
        with printing_once():
            print("once")
        with pytest.raises(ConfigError, match="is training in this folder"), folder.lock():
            pass
    assert capsys.readouterr().out == "once\n"
