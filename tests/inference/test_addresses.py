"""Inputs and outputs at addresses of fsspec: the bytes of the same files on this machine."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from training.tiny_runs import run, train, write_molecules

import graphfold
from graphfold.dag import TypedDAG
from graphfold.inference.inputs import find_inputs
from graphfold.inference.places import made_here
from graphfold.inference.predictor import Predictor

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


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
    for address, message in (
        ("s3://bucket/out.csv", "s3://bucket/out.csv: needs a library that is not installed"),
        ("sx3://bucket/out", "sx3://bucket/out: cannot be reached (Protocol not known: sx3"),
    ):
        assert run("predict", molecules, bucket / "a.csv", "--output", address) == 2
        assert message in capsys.readouterr().err


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """The file system of `memory://out`; what is made for it lies in `tmp_path/cache`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/out"):
        system.rm("/out", recursive=True)


def contents(system: MemoryFileSystem) -> dict[str, bytes]:
    return {name: system.cat_file(name) for name in system.find("/out")}


def test_outputs_are_put_at_addresses_as_a_whole(
    molecules: Path, bucket: Path, store: MemoryFileSystem, tmp_path: Path
) -> None:
    for command, name in (("predict", "a.csv"), ("predict", "a.parquet"), ("fingerprint", "a.npz")):
        here = tmp_path / name
        assert run(command, molecules, bucket / "a.csv", "--output", here) == 0
        address = f"memory://out/new/{name}"
        assert run(command, molecules, bucket / "a.csv", "--output", address) == 0
        assert store.cat_file(f"/out/new/{name}") == here.read_bytes()
    assert run("evaluate", molecules, "--json", "memory://out/new/m.json") == 0
    assert run("evaluate", molecules, "--json", tmp_path / "m.json") == 0
    assert store.cat_file("/out/new/m.json") == (tmp_path / "m.json").read_bytes()
    assert len(contents(store)) == 4  # and nothing else
    assert not [*(tmp_path / "cache").rglob("outputs/*")]
    store.pipe("/out/new/m.json", b"other")
    assert run("evaluate", molecules, "--json", "memory://out/new/m.json") == 0
    assert store.cat_file("/out/new/m.json") == (tmp_path / "m.json").read_bytes()
    assert run("evaluate", molecules, "--json", "memory://out/new") == 2  # a folder


def test_an_address_of_this_machine_is_a_path(
    molecules: Path, bucket: Path, tmp_path: Path
) -> None:
    for number, protocol in enumerate(("file://", "local://")):
        output = tmp_path / f"{number}.csv"
        assert (
            run(
                "predict", molecules, f"{protocol}{bucket}/a.csv", "--output", f"{protocol}{output}"
            )
            == 0
        )
        assert output.is_file()


def test_a_folder_at_an_address_goes_on_where_it_was(
    molecules: Path,
    bucket: Path,
    store: MemoryFileSystem,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("predict", molecules, bucket, "--output")
    assert run(*words, tmp_path / "here") == 0
    files = [path for path in (tmp_path / "here").rglob("*") if path.is_file()]
    wanted = {f"/out/new/{p.relative_to(tmp_path / 'here')}": p.read_bytes() for p in files}
    assert len(wanted) == 6  # three outputs, and a note for each
    for shard in ("1/2", "2/2"):
        assert run(*words, "memory://out/new/", "--shard", shard) == 0
    assert contents(store) == wanted
    capsys.readouterr()
    store.rm_file("/out/new/below/c.csv")
    store.pipe("/out/new/a.csv", b"cut off")
    assert run(*words, "memory://out/new") == 0
    assert capsys.readouterr().err.count("was there") == 1
    assert contents(store) == wanted
    assert (
        run(
            "predict",
            molecules,
            "memory://out/new/a.csv",
            "memory://bucket/a.csv",
            "--output",
            "memory://out/new",
        )
        == 2
    )
    assert "would both be written to memory://out/new/a.csv" in capsys.readouterr().err
    assert run("predict", molecules, "memory://bucket/", "--output", "memory://bucket/") == 2
    assert "is an input, and would be replaced by its output" in capsys.readouterr().err


def test_what_is_broken_off_leaves_no_part_at_the_address(
    molecules: Path,
    bucket: Path,
    store: MemoryFileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The work goes on from what lies in the cache folder."""
    words = ("predict", molecules, bucket / "a.csv", "--batch-size", "2", "--output")
    assert run(*words, tmp_path / "a.csv") == 0
    real = Predictor.predict_graphs
    calls = []

    def interrupted(self: Predictor, dag: TypedDAG) -> object:
        calls.append(dag)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, dag)

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "predict_graphs", interrupted)
        assert run(*words, "memory://out/a.csv") == 1
    assert contents(store) == {}
    assert "a.csv.part keeps what is done" in capsys.readouterr().err
    assert run(*words, "memory://out/a.csv") == 0
    assert "a.csv.part: going on after" in capsys.readouterr().err
    assert contents(store) == {"/out/a.csv": (tmp_path / "a.csv").read_bytes()}


def test_what_cannot_be_put_is_kept(
    molecules: Path,
    bucket: Path,
    store: MemoryFileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An upload that fails half-way leaves nothing under the name of the output."""

    def half(self: MemoryFileSystem, here: str, there: str, **_: object) -> None:
        self.pipe(there, Path(here).read_bytes()[:10])
        raise PermissionError("no more")

    store.pipe("/out/a.csv", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put_file", half)
        words = ("predict", molecules, bucket / "a.csv", "--output", "memory://out/a.csv")
        assert run(*words) == 2
    assert "memory://out/a.csv: cannot be written (no more). " in capsys.readouterr().err
    assert contents(store) == {"/out/a.csv": b"old"}
    (kept,) = (tmp_path / "cache").rglob("a.csv")
    assert kept.read_bytes().count(b"\n") > 6


def test_a_store_of_objects_is_written_to_without_renaming(
    store: MemoryFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy by the server would take its time, and a file is there when its upload is complete."""
    monkeypatch.setattr(MemoryFileSystem, "protocol", ("s3", "s3a"))
    monkeypatch.setattr(MemoryFileSystem, "mv", None)
    with made_here("memory://out/a.csv") as path:
        path.write_bytes(b"whole")
    assert store.cat_file("/out/a.csv") == b"whole"
