"""--engine ray: the files of the command, byte for byte, though workers and drivers are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from training.tiny_runs import run, train, write_molecules

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b',c]"]
    return train(folder / "run", *words, *SMALL)


def command(*words: str | Path) -> subprocess.Popen[str]:
    """The command in a process of its own, whose workers compute with one thread, as it does."""
    return subprocess.Popen(
        [sys.executable, "-m", "graphfold", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def workers_below(pid: int) -> list[int]:
    """The processes below a process that work on inputs, by what they call themselves."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
    lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()[1:]]
    parents = {int(child): int(parent) for child, parent, _ in lines}

    def is_below(child: int) -> bool:
        while child in parents and child != pid:
            child = parents[child]
        return child == pid

    return [int(line[0]) for line in lines if "ray::_call" in line[2] and is_below(int(line[0]))]


@needs_ray
def test_the_files_are_those_of_the_command(molecules: Path, tmp_path: Path) -> None:
    for number in range(5):
        write_molecules(tmp_path / "in" / f"{number}.csv", 200 + number, bad_rows=number)
    (tmp_path / "in" / "5.csv").write_text("SMILES\nCC\n")
    words = ("predict", molecules, tmp_path / "in", "--output")
    told = []
    for more in ([tmp_path / "one"], [tmp_path / "ray", "--engine", "ray", "--workers", "2"]):
        process = command(*words, *more)
        lines = process.communicate()[1].replace(str(more[0]), "OUT").splitlines()
        told.append([" ".join(line.split()) for line in lines if "a second" not in line])
        assert process.returncode == 2
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")
    assert len(contents(tmp_path / "one")) == 5
    assert told[0] == told[1]
    assert len(told[0]) == 8
    (tmp_path / "in" / "5.csv").unlink()
    process = command(*words, tmp_path / "ray", "--engine", "ray")
    assert process.communicate()[1].count("was there") == 5
    assert process.returncode == 0
    process = command(
        "fingerprint", *words[1:], tmp_path / "v", "--format", "npy", "--engine", "ray"
    )
    process.communicate()
    assert process.returncode == 0
    assert {*contents(tmp_path / "v")} == {f"{number}.npy" for number in range(5)}


@needs_ray
@pytest.mark.slow
def test_workers_and_drivers_that_are_killed_lose_nothing(molecules: Path, tmp_path: Path) -> None:
    for number in range(6):
        write_molecules(tmp_path / "in" / f"{number}.csv", 3_000 + 100 * number)
    words = ("predict", molecules, tmp_path / "in", "--batch-size", "8", "--output")
    assert run(*words, tmp_path / "one") == 0
    ray = (tmp_path / "ray", "--engine", "ray", "--workers", "2")
    rng, kills = random.Random(5), {"worker": 0, "driver": 0}
    process = command(*words, *ray)
    while process.poll() is None:
        time.sleep(rng.uniform(1.0, 3.0))
        workers = workers_below(process.pid)
        if workers and kills["worker"] < 3:
            os.kill(rng.choice(workers), signal.SIGKILL)
            kills["worker"] += 1
        elif workers and kills["driver"] < 2:
            process.kill()
            process.communicate()
            kills["driver"] += 1
            process = command(*words, *ray)
    told = process.communicate()[1]
    assert process.returncode == 0, told
    assert kills == {"worker": 3, "driver": 2}
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")


def test_wrong_uses_are_told(
    molecules: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = write_molecules(tmp_path / "in" / "0.csv", 3)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    out = ("--engine", "ray", "--output", tmp_path / "out")
    for words, message in (
        ((table, "--workers", "2"), "Add --engine ray"),
        ((table, "--engine", "ray"), "Name a folder with --output"),
        ((table, "--engine", "ray", "--output", tmp_path / "x.csv"), "Name a folder with --output"),
        (("-", table, *out), "an input is a pipe"),
        ((tmp_path / "in", *out), "pip install 'graphfold[ray]'"),
    ):
        assert run("predict", molecules, *words) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
