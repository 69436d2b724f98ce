"""predict, fingerprint and draw, broken off at random moments and gone on with: byte for byte."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training.tiny_runs import run, train, write_corpora, write_molecules

import graphfold
from graphfold.inference.output import work_of
from graphfold.inference.predictor import Predictor

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interruption")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", "model=dmpnn", f"data.path={table}", "data.target_columns=['a b',c]"]
    return train(folder / "molecules", *words, *SMALL)


@pytest.fixture(scope="module")
def trees(folder: Path) -> Path:
    root = write_corpora(folder / "corpora")
    return train(folder / "trees", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL)


@pytest.fixture(scope="module")
def new(folder: Path) -> Path:
    return write_molecules(folder / "new.csv", num_rows=60, bad_rows=3)


@pytest.fixture(scope="module")
def sentences(folder: Path) -> Path:
    path = folder / "new.txt"
    tree = "(2 (2 the) (3 (3 good) (2 film)))\n(2 (2 a)\n((1 dull) (1 film))\n"
    path.write_text(tree * 24)
    return path


def break_off(patch: pytest.MonkeyPatch, after: int) -> None:
    """Ctrl-C comes when so many batches have been answered."""
    plan, count = Predictor.plan, iter(range(after))

    def plan_or_stop(self: Predictor, *args: Any) -> Any:
        if next(count, None) is None:
            raise KeyboardInterrupt
        return plan(self, *args)

    patch.setattr(Predictor, "plan", plan_or_stop)


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(path.iterdir())
    return {file.name: file.read_bytes() for file in files}


COMMANDS = {
    "table": ("predict", "molecules", "new", "out.csv", ()),
    "explained": ("predict", "molecules", "new", "out.csv", ("--explain",)),
    "lines": ("predict", "trees", "sentences", "out.jsonl", ()),
    "brackets": ("predict", "trees", "sentences", "out.txt", ("--format", "brackets")),
    "csv": ("fingerprint", "molecules", "new", "out.csv", ()),
    "npy": ("fingerprint", "molecules", "new", "out.npy", ()),
    "parquet": ("fingerprint", "trees", "sentences", "out.parquet", ()),
    "pictures": ("draw", "trees", "sentences", "out", ()),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_work_that_is_broken_off_is_gone_on_with(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, model, data, output, more = COMMANDS[name]
    words = (command, request.getfixturevalue(model), request.getfixturevalue(data))
    options = (*more, "--batch-size", "8", "--set", "num_workers=0", "--output")
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    for place in (unbroken, broken):
        place.mkdir()
    assert run(*words, *options, unbroken / output) == 0
    rng = random.Random(name)
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            break_off(patch, rng.randint(1, 2))
            assert run(*words, *options, broken / output) == 1
        assert "goes on from it" in capsys.readouterr().err
    assert run(*words, *options, broken / output) == 0
    assert "going on after" in capsys.readouterr().err
    assert contents(broken / output) == contents(unbroken / output)
    assert len(list(broken.iterdir())) == len(list(unbroken.iterdir()))


def test_another_command_or_input_begins_anew(
    molecules: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, output = write_molecules(folder / "changing.csv", num_rows=40), folder / "anew.csv"
    words = ("predict", molecules, table, "--output", output, "--batch-size", "8")
    for change in ("other options", "other input"):
        with pytest.MonkeyPatch.context() as patch:
            break_off(patch, 2)
            assert run(*words) == 1
        capsys.readouterr()
        more: tuple[str, ...] = ()
        if change == "other input":
            table.write_text(table.read_text() + "CCO,1,1\n")
        else:
            more = ("--explain",)
        assert run(*words, *more) == 0
        assert "belongs to another input, model or command" in capsys.readouterr().err
        assert len(output.read_text().splitlines()) == len(table.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_process_is_gone_on_with(
    number: signal.Signals, molecules: Path, folder: Path
) -> None:
    table = write_molecules(folder / "long.csv", num_rows=6_000)
    unbroken, broken = folder / "unbroken.csv", folder / f"broken-{number}.csv"
    words = [molecules, table, "--batch-size", "8", "--output"]
    assert run("predict", *words, unbroken) == 0
    command = [sys.executable, "-m", "graphfold", "predict", *map(str, words), str(broken)]
    rng, part = random.Random(int(number)), broken.with_name(f"{broken.name}.part")
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.05)
        time.sleep(rng.uniform(0.2, 2.0))
        process.send_signal(number)
        _, told = process.communicate()
        assert "Traceback" not in told
        if process.returncode == 0:
            break
    assert subprocess.run(command, check=False).returncode == 0
    assert broken.read_bytes() == unbroken.read_bytes()
    assert not [
        p for p in folder.iterdir() if p.name.startswith((broken.name + ".", f".{broken.name}"))
    ]


@pytest.mark.slow
def test_jobs_that_are_killed_at_ten_moments_lose_nothing(molecules: Path, folder: Path) -> None:
    """Two jobs share nine files of different sizes; every file is whole whenever it is there."""
    for number in range(9):
        write_molecules(folder / "many" / f"{number}.csv", 1_000 + 100 * number)
    words = ["predict", molecules, folder / "many", "--batch-size", "8", "--output"]
    assert run(*words, folder / "at_once") == 0
    wanted = {path.name: path.read_bytes() for path in (folder / "at_once").glob("*.csv")}
    rng, kills = random.Random(3), 0

    def start(job: int) -> subprocess.Popen[bytes]:
        more = [str(folder / "shared"), "--shard", f"{job}/2"]
        command = [sys.executable, "-m", "graphfold", *map(str, words), *more]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    jobs = {job: start(job) for job in (1, 2)}
    while jobs:
        time.sleep(rng.uniform(0.5, 6.0))
        for path in (folder / "shared").glob("*.csv"):
            assert path.read_bytes() == wanted[path.name]
        for job, process in [*jobs.items()]:
            if process.poll() is not None and process.returncode == 0:
                del jobs[job]
            elif kills < 10:
                process.kill()
                process.wait()
                kills += 1
                jobs[job] = start(job)
    assert kills == 10
    assert {p.name: p.read_bytes() for p in (folder / "shared").iterdir() if p.is_file()} == wanted


def test_the_work_is_that_of_the_model_in_memory(molecules: Path, new: Path) -> None:
    first, second = graphfold.load(molecules), graphfold.load(molecules)
    assert work_of(first, new, {}) == work_of(second, new, {})
    with torch.no_grad():
        next(second.module.parameters())[0] += 1.0
    assert work_of(first, new, {}) != work_of(second, new, {})
    moved = replace(first.trained, path=Path("gone.ckpt"))
    third = Predictor(moved)
    assert work_of(third, new, {}) == work_of(first, new, {})
