"""One training at a time in a run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from training.tiny_runs import listops, run

from graphfold.errors import ConfigError
from graphfold.training.run.run_folder import LOCK, lock_folder

HOLD = """
import sys
from pathlib import Path
from graphfold.training.run.run_folder import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_the_lock_goes_with_its_training(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_folder(tmp_path):
            assert (tmp_path / LOCK).is_file()
            with pytest.raises(ConfigError, match=rf"process {os.getpid()} on .* is training"):
                lock_folder(tmp_path).__enter__()
        assert not list(tmp_path.iterdir())


def test_a_dead_process_lets_go(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(ConfigError, match=f"process {process.pid} on"):
            lock_folder(tmp_path).__enter__()
        process.kill()
        process.wait()
    assert (tmp_path / LOCK).is_file()
    with lock_folder(tmp_path):
        pass


def test_a_second_training_of_the_folder_is_refused(
    listops_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = listops_copy
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    words = [*listops("trainer.max_epochs=1", "logger=none"), f"hydra.run.dir={folder}"]
    with lock_folder(folder):
        assert run("train", *words) == 2
        assert "is training in this folder" in capsys.readouterr().err
        assert run("train", f"resume={folder}") == 2
        assert "is training in this folder" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in before} == before
