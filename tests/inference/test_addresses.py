"""Inputs at addresses of fsspec: the rows of the same files on this machine."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from training.tiny_runs import run, train, write_molecules

import graphfold
from graphfold.inference.inputs import find_inputs

SMALL = ["model.hidden_size=8", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("addresses")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b',c]"]
    return train(folder / "run", *words, *SMALL)


@pytest.fixture
def bucket(folder: Path) -> Iterator[Path]:
    """The files in `memory://bucket`, and the same in a folder."""
    system, here = fsspec.filesystem("memory"), folder / "bucket"
    for number, name in enumerate(("a.csv", "below/b.csv.gz", "below/c.csv")):
        path = write_molecules(here / name, 6 + number, bad_rows=number)
        system.pipe(f"/bucket/{name}", path.read_bytes())
    system.pipe("/bucket/_SUCCESS", b"")
    system.pipe("/bucket/.hidden/d.csv", b"")
    yield here
    system.rm("/bucket", recursive=True)


def predicted(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert run("predict", *words) == 0
    return capsys.readouterr().out


def test_the_rows_are_those_of_the_files(
    molecules: Path, bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = predicted(capsys, molecules, bucket / "a.csv")
    assert predicted(capsys, molecules, "memory://bucket/a.csv") == one
    assert predicted(capsys, molecules, "memory://bucket/*.csv") == one
    packed = predicted(capsys, molecules, bucket / "below" / "b.csv.gz")
    assert predicted(capsys, molecules, "memory://bucket/below/b.csv.gz") == packed
    assert gzip.decompress((bucket / "below" / "b.csv.gz").read_bytes()).startswith(b"id,smiles")
    outputs = []
    for name, given in (("here", bucket), ("there", "memory://bucket")):
        assert run("predict", molecules, given, "--output", tmp_path / name) == 0
        files = sorted((tmp_path / name).rglob("[abc].csv"))
        outputs.append([(p.relative_to(tmp_path / name), p.read_bytes()) for p in files])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 3
    capsys.readouterr()
    assert run("predict", molecules, "memory://bucket", "--output", tmp_path / "there") == 0
    assert capsys.readouterr().err.count("was there") == 3
    fsspec.filesystem("memory").pipe(
        "/bucket/a.csv", (bucket / "a.csv").read_bytes() + b"x,C,1,1,1\n"
    )
    assert run("predict", molecules, "memory://bucket", "--output", tmp_path / "there") == 0
    assert capsys.readouterr().err.count("was there") == 2
    single = tmp_path / "single.npy"  # one file, not a folder of outputs
    words = ("fingerprint", molecules, "memory://bucket/below/c.csv", "--output", single)
    assert run(*words) == 0
    assert single.is_file()


def test_names_are_those_below_what_was_given(molecules: Path, bucket: Path) -> None:
    adapter = graphfold.load(molecules).adapter

    def names(*words: str) -> list[str]:
        return [str(given.name) for given in find_inputs(words, adapter)]

    assert names("memory://bucket") == ["a.csv", "below/b.csv.gz", "below/c.csv"]
    assert names("memory://bucket/below/", "memory://bucket/a.csv") == [
        "b.csv.gz",
        "c.csv",
        "a.csv",
    ]
    assert names("memory://bucket/*/c.*") == ["below/c.csv"]
    assert names("memory://bucket/**/*.csv") == ["a.csv", "below/c.csv"]


def test_what_is_not_there_is_told_by_its_address(
    molecules: Path,
    bucket: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as if it were not installed
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/wrong.csv", b"SMILES\nC\n")
    for address, message in (
        ("memory://bucket/none.csv", "memory:///bucket/none.csv: no such file"),
        ("memory://bucket/*.smi", "memory://bucket/*.smi: no file is there"),
        ("memory://bucket/wrong.csv", "memory:///bucket/wrong.csv:1: no column 'smiles'"),
        (
            "s3://bucket/a.csv",
            "s3://bucket/a.csv: needs a library that is not installed (Install s3fs",
        ),
        ("sx3://bucket/a.csv", "sx3://bucket/a.csv: cannot be reached (Protocol not known: sx3"),
    ):
        assert run("predict", molecules, address) == 2
        assert message in capsys.readouterr().err
    assert run("predict", molecules, bucket, "--output", "memory://out") == 2
    assert "outputs are files of this machine. Name a file" in capsys.readouterr().err
