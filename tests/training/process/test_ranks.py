"""Processes that a launcher starts share one run folder; the first one writes it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from processes import START_METHOD
from torch.multiprocessing import start_processes
from training.launches import BY_SRUN, BY_TORCHRUN, set_environment
from training.tiny_runs import listops, read_json

from graphfold.errors import ConfigError, DivergenceError, ProcessError
from graphfold.training.process.launch import rank
from graphfold.training.process.quiet import printing_once
from graphfold.training.process.ranks import (
    add_up,
    gather_objects,
    joined,
    num_processes,
    run_in_processes,
    share_buffers,
)
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.trainer import Trainer


def test_the_number_of_processes_is_that_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_processes(Trainer()) == 1
    assert num_processes(Trainer(devices=2)) == 2
    with pytest.raises(ConfigError, match="num_nodes is 3, but this process was .* by srun"):
        num_processes(Trainer(num_nodes=3))
    set_environment(monkeypatch, BY_TORCHRUN)
    assert num_processes(Trainer()) == 6
    assert num_processes(Trainer(devices=2, num_nodes=3)) == 6
    with pytest.raises(ConfigError, match="devices is 3, but the processes of torchrun on this m"):
        num_processes(Trainer(devices=3))
    with pytest.raises(ConfigError, match="num_nodes is 2, but the machines of torchrun are 3. L"):
        num_processes(Trainer(num_nodes=2))


def test_processes_of_srun_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """They see all GPUs of their machine, or (--gpus-per-task=1) each its own as number 0."""
    set_environment(monkeypatch, BY_SRUN)
    devices: list[torch.device] = []
    for count in (2, 1):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        run_in_processes(Trainer(accelerator="gpu"), devices.append)
    assert devices == [torch.device("cuda", 1), torch.device("cuda", 0)]


def test_who_does_not_meet_the_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, {**BY_SRUN, "SLURM_PROCID": "0"})
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setenv("MASTER_ADDR", "localhost")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        match = r"process 0 of 5 has not met .* tcp://localhost:\d+ \(.*MASTER_ADDR and MASTER_PORT"
        with pytest.raises(ProcessError, match=match), joined(Trainer(accelerator="cpu")):
            pass


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forks of this one where they can be, which need not load torch."""
    fork = partial(start_processes, start_method=START_METHOD)
    monkeypatch.setattr("graphfold.training.process.ranks.start_processes", fork)


TWO = Trainer(devices=2, accelerator="cpu")
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def talk(device: torch.device, folder: Path) -> None:
    number = rank()
    norm = torch.nn.BatchNorm1d(2)
    norm.running_mean.fill_(number + 5)  # type: ignore[union-attr]
    share_buffers(norm)
    facts = {
        "sum": add_up(number + 1.0, device),
        "all": gather_objects(f"process {number}"),
        "buffer": norm.running_mean.tolist(),  # type: ignore[union-attr]
        "threads": torch.get_num_threads(),
    }
    print(f"process {number} speaks")
    (folder / f"{number}.json").write_text(json.dumps(facts))


@FORKS
@pytest.mark.usefixtures("forked")
def test_processes_add_up_and_tell_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_in_processes(TWO, talk, tmp_path)
    for number in range(2):
        facts = read_json(tmp_path / f"{number}.json")
        assert facts == {
            "sum": 3.0,
            "all": ["process 0", "process 1"],
            "buffer": [5.0, 5.0],
            "threads": torch.get_num_threads(),
        }
    assert rank() == 0


def fail(device: torch.device, folder: Path, error: Exception) -> None:
    if rank() == 1:
        raise error
    outlive(folder)


def outlive(folder: Path) -> None:
    """Leaves a file in the folder, unless this process is ended before."""
    time.sleep(60)
    (folder / "outlived").touch()


@FORKS
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (DivergenceError("the loss of epoch 2 is nan."), DivergenceError, "the loss of epoch 2"),
        (KeyError("x"), RuntimeError, "in process 1: KeyError: 'x'"),
    ],
)
def test_an_error_of_a_process_ends_all_and_is_told(
    error: Exception, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        run_in_processes(TWO, fail, tmp_path, error)
    assert not (tmp_path / "outlived").exists()


def die(device: torch.device, folder: Path) -> None:
    if rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    add_up(1.0, device)  # waits for the other one
    outlive(folder)


@FORKS
@pytest.mark.usefixtures("forked")
def test_a_process_that_is_killed_ends_all_and_is_told(tmp_path: Path) -> None:
    # Either is seen first: that it is gone, or that it does not answer.
    match = r"(1 of 2 ended \(SIGKILL\)|0 of 2 can no longer reach the others).*resume=RUN"
    with pytest.raises(ProcessError, match=match) as error:
        run_in_processes(TWO, die, tmp_path)
    assert not (tmp_path / "outlived").exists()
    assert error.value.exit_code == 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
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
        monkeypatch.setenv("RANK", "1")
        with folder.lock(), printing_once():
            print("twice")
            warnings.warn("twice", stacklevel=1)
        monkeypatch.delenv("RANK")
        with printing_once():
            print("once")
        with pytest.raises(ConfigError, match="is training in this folder"), folder.lock():
            pass
    assert capsys.readouterr().out == "once\n"


@pytest.mark.slow  # processes that load torch: 10 s each
def test_two_processes_train_one_run(tmp_path: Path) -> None:
    folders = {}
    for name, program, more in (
        ("spawned", ["-m", "graphfold"], ["trainer.devices=2"]),
        ("torchrun", ["-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "graphfold"], []),
    ):
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
