"""Files in, files out: pipes, folders, shares of jobs, Parquet, and outputs that are whole."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from training.tiny_runs import MOLECULES, run, write_molecules

import graphfold
from graphfold import TablePredictor
from graphfold.inference.predictor import Predictor


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Longer than what a reader of a pipe takes at once, with bad rows and bytes of Latin 1."""
    path = tmp_path / "long.csv"
    smiles = ["C1CC"] * 3 + [*MOLECULES] * 59 + ["N"]
    rows = [f'"x,{k}{"." * 200}",{text},1,1,1' for k, text in enumerate(smiles)]
    text = "\n".join(["id,smiles,a b,c,active", *rows, "caf\xe9,CC,1,1,1\n"])
    path.write_bytes(text.encode("latin-1"))
    return path


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "long.txt"
    path.write_text("(2 (2 the) (3 (3 good) (2 film)))\n(2 (2 a)\n((1 dull) (1 film))\n" * 150)
    return path


def predicted(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Standard output of `graphfold predict`."""
    capsys.readouterr()
    assert run("predict", *words) == 0
    return capsys.readouterr().out


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        return list(csv.DictReader(file))


def outputs(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@contextmanager
def fed(path: Path, content: bytes) -> Iterator[Path]:
    """A pipe with that content, as a shell makes it of <(cat FILE)."""
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: path.write_bytes(content))
    thread.start()
    yield path
    thread.join()
    path.unlink()


def type_in(patch: pytest.MonkeyPatch, content: bytes) -> None:
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("kind", ["numbers", "trees", "trees --format brackets"])
def test_the_same_rows_by_file_gzip_pipe_and_standard_input(
    kind, request, tmp_path, monkeypatch, capsys
):
    name, *options = kind.split()
    model = request.getfixturevalue(name)
    path = request.getfixturevalue("table" if name == "numbers" else "sentences")
    content = path.read_bytes()
    expected = predicted(capsys, model, path, *options)
    assert len(expected.splitlines()) >= 450
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(content))
    assert predicted(capsys, model, packed, *options) == expected
    with fed(tmp_path / "63", content) as pipe:
        assert predicted(capsys, model, pipe, *options) == expected
    for given in (content, gzip.compress(content)):
        type_in(monkeypatch, given)
        assert predicted(capsys, model, "-", *options) == expected
    assert os.listdir(tmp_path / "temporary") == []


def test_a_list_and_a_data_frame_have_the_numbers_of_the_file(numbers, home, capsys):
    """Within rounding: in a file as small as this one the cells are not compiled."""
    text = predicted(capsys, numbers, home / "m.csv").encode()
    expected = pyarrow.csv.read_csv(io.BytesIO(text)).column("c_pred").to_pylist()
    frame, model = pyarrow.csv.read_csv(home / "m.csv"), graphfold.load(numbers)
    listed = model.predict(frame.column("smiles").to_pylist())
    assert [told["prediction"]["c"] for told in listed] == pytest.approx(expected, rel=1e-5)
    framed = model.predict(frame).column("c_pred").to_pylist()
    assert framed == pytest.approx(expected, rel=1e-5)


def test_wrong_inputs_are_refused_by_their_names(numbers, home, tmp_path, monkeypatch, capsys):
    (tmp_path / "x.smiles").write_text("CCO\n")
    table, out = home / "m.csv", tmp_path / "out"
    (tmp_path / "y").mkdir()
    second = write_molecules(tmp_path / "y" / "m.csv", 5)
    type_in(monkeypatch, b"SMILES\nCC\n")
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path / "x.smiles",), "x.smiles: is of no known kind of table"),
        ((tmp_path / "no*.csv",), r"no\*.csv: no file has such a name. Correct INPUT"),
        (("-",), "standard input:1: no column 'smiles' among 'SMILES'"),
        ((tmp_path / "none.csv",), "none.csv: no such file"),
        ((table, second), "Name one with --output"),
        ((table, second, "--output", tmp_path / "all.csv"), "Name one with --output"),
        ((table, second, "--output", out), "would be the output of two inputs"),
        ((tmp_path / "y", "--output", tmp_path / "y"), "or is an input itself"),
        ((table, "--shard", "1/2"), "Name one with --output"),
        ((table, "--shard", "4/3"), "'4/3' is no share. Write 3/64"),
        ((table, "--format", "parquet"), "Parquet is written to a file"),
        ((table, "--format", "npy", "--output", out), "as csv or parquet, not as npy"),
        ((table, "--format", "jsonl"), "as csv or parquet, not as jsonl"),
        ((table, "--embeddings", "--format", "jsonl"), "as csv or parquet or npy, not as jsonl"),
        ((table, "--explain", "--format", "parquet", "--output", out), "no place for contribut"),
    ]
    for words, message in cases:
        capsys.readouterr()
        assert run("predict", numbers, *words) == 2, words
        error = capsys.readouterr().err
        assert re.search(message, error), error
        assert "/graphfold-" not in error
    assert {path.name for path in tmp_path.iterdir()} <= {"x.smiles", "y", "out"}
    assert outputs(tmp_path / "y") == ["m.csv"]


def test_each_input_of_a_folder_has_an_output_in_its_place(numbers, trees, tmp_path, capsys):
    """Files such as _SUCCESS, which Spark and Arrow write beside data, are no inputs."""
    write_molecules(tmp_path / "in" / "a.csv", 9)
    write_molecules(tmp_path / "in" / "below" / "a.csv.gz", 7)
    for name in ("_SUCCESS", "_metadata", ".a.crc"):
        (tmp_path / "in" / name).write_bytes(b"")
    (tmp_path / "b.smi").write_text("CC\nC1CC\n")
    out = tmp_path / "out"
    assert run("predict", numbers, tmp_path / "in", tmp_path / "b.smi", "--output", out) == 0
    assert "17 predicted, 1 could not be read" in capsys.readouterr().err
    assert outputs(out) == ["a.csv", "b.csv", "below/a.csv"]
    alone = predicted(capsys, numbers, tmp_path / "in" / "below" / "a.csv.gz")
    assert (out / "below" / "a.csv").read_text() == alone
    (tmp_path / "t.txt").write_text("(2 (2 the) (2 film))\n")
    assert run("predict", trees, tmp_path / "t.txt", "--output", out) == 0  # a folder that is there
    assert json.loads((out / "t.jsonl").read_text())["line"] == 1
    again = ("predict", trees, tmp_path / "t*.txt", "--output", out, "--format", "brackets")
    assert run(*again) == 0
    assert (out / "t.txt").read_text().startswith("(")


def test_outputs_that_are_there_are_passed_over_and_bad_inputs_stop_nobody(
    numbers, tmp_path, capsys
):
    for number in range(3):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5)
    (tmp_path / "in" / "1.csv").write_text("SMILES\nCC\n")
    words = ("predict", numbers, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words) == 2
    told = capsys.readouterr().err
    assert "1.csv: not written:" in told
    assert "error: 1 of 3 inputs cannot be used:" in told
    assert outputs(tmp_path / "out") == ["0.csv", "2.csv"]
    (tmp_path / "out" / "0.csv").write_text("mine")
    write_molecules(tmp_path / "in" / "1.csv", 4)
    assert run(*words) == 0
    told = capsys.readouterr().err
    assert told.count("is there, and passed over") == 2
    assert "4 predicted, 0 could not be read" in told
    assert (tmp_path / "out" / "0.csv").read_text() == "mine"
    assert len(rows_of(tmp_path / "out" / "1.csv")) == 4


def test_jobs_share_the_inputs(numbers, tmp_path):
    for number in range(5):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5 + number)
    words = ("predict", numbers, tmp_path / "in", "--output")
    assert run(*words, tmp_path / "one") == 0
    for number, names in ((2, ["1.csv", "4.csv"]), (3, ["2.csv"]), (1, ["0.csv", "3.csv"])):
        before = {*outputs(tmp_path / "out")} if (tmp_path / "out").exists() else set()
        assert run(*words, tmp_path / "out", "--shard", f"{number}/3") == 0
        assert sorted({*outputs(tmp_path / "out")} - before) == names
    for name in outputs(tmp_path / "one"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_broken_off_it_leaves_what_was_there(form, numbers, table, tmp_path, monkeypatch):
    plan, allowed = Predictor.plan, iter(range(2))

    def plan_or_stop(self: Predictor, *args: Any) -> Any:
        if next(allowed, None) is None:
            raise KeyboardInterrupt
        return plan(self, *args)

    monkeypatch.setattr(Predictor, "plan", plan_or_stop)
    out = tmp_path / "out" / f"p.{form}"
    out.parent.mkdir()
    out.write_text("before")
    assert run("predict", numbers, table, "--output", out, "--batch-size", "100") == 1
    assert outputs(out.parent) == [out.name]
    assert out.read_text() == "before"


def test_parquet_has_the_rows_of_the_csv_file(numbers, table, tmp_path):
    assert run("predict", numbers, table, "--output", tmp_path / "p.parquet") == 0
    assert run("predict", numbers, table, "--output", tmp_path / "p.csv") == 0
    found, expected = pq.read_table(tmp_path / "p.parquet"), rows_of(tmp_path / "p.csv")
    told = [{k: "" if v is None else str(v) for k, v in row.items()} for row in found.to_pylist()]
    assert told == expected
    assert sum(bool(row["reason"]) for row in expected) == 4
    assert [found.schema.field(name).type for name in ("id", "smiles")] == [pa.string()] * 2


def test_columns_of_parquet_keep_their_types(numbers, home, tmp_path):
    rows = pyarrow.csv.read_csv(home / "m.csv")
    rows = rows.append_column("weights", pa.array([[0.5, None]] * rows.num_rows))
    for part in range(2):
        (tmp_path / "in" / f"k={part}").mkdir(parents=True)
        pq.write_table(rows.slice(15 * part, 15), tmp_path / "in" / f"k={part}" / "x.parquet")
    words = ("predict", numbers, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words, "--format", "parquet") == 0
    found = pq.ParquetFile(tmp_path / "out" / "k=1" / "x.parquet").read()
    declared = TablePredictor(numbers).schema(rows.schema)
    assert found.schema.remove_metadata() == declared.remove_metadata()
    assert found.select(rows.column_names).equals(rows.slice(15, 15))
    assert pq.read_table(tmp_path / "out").num_rows == 30  # the folder is a data set


@pytest.mark.parametrize(
    ("place", "form"),
    [("head", "parquet"), ("middle", "parquet"), ("middle", "csv"), ("cut", "csv")],
)
def test_a_damaged_input_is_named(form, place, numbers, tmp_path, capsys):
    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({"smiles": ["CCO" + "O" * (n % 50) for n in range(5_000)]}), path)
    content = bytearray(path.read_bytes())
    damaged = {"head": b"x" * len(content), "cut": content[:-100]}.get(place)
    if damaged is None:
        damaged = content[:20] + bytes(1_000) + content[1_020:]
    path.write_bytes(damaged)
    assert run("predict", numbers, path, "--output", tmp_path / f"p.{form}") == 2
    assert "new.parquet: cannot be read as Parquet" in capsys.readouterr().err
    assert not (tmp_path / f"p.{form}").exists()


def test_a_reader_that_goes_is_no_crash(numbers, tmp_path):
    """With more rows than a pipe holds."""
    long = tmp_path / "many.csv"
    long.write_text("smiles\n" + "CCO\n" * 5_000)
    command = ["bash", "-o", "pipefail", "-c"]
    predict = '"$0" -m graphfold predict "$1" "$2"'
    words = [sys.executable, str(numbers), str(long)]
    done = subprocess.run(
        [*command, f"{predict} | head -1", *words], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("smiles,")
    assert (done.stderr, done.returncode) == ("", 1)


def test_draw_and_evaluate_read_standard_input(
    trees, numbers, sentences, home, tmp_path, monkeypatch, capsys
):
    """And `evaluate` leaves no packed copy of standard input in the cache."""
    monkeypatch.chdir(tmp_path)
    type_in(monkeypatch, sentences.read_bytes())
    assert run("draw", trees, "-") == 0
    assert run("draw", trees, sentences, "--output", "there") == 0
    pages = [Path(name, "index.html").read_text() for name in ("stdin_drawings", "there")]
    assert "standard input" in pages[0]
    assert pages[0].split("<figure")[1:] == pages[1].split("<figure")[1:]
    words = ("--set", f"cache_dir={tmp_path}/cache", "--json")
    assert run("evaluate", numbers, "--data", home / "m.csv", *words, "file.json") == 0
    told, before = capsys.readouterr().out, list((tmp_path / "cache").iterdir())
    type_in(monkeypatch, gzip.compress((home / "m.csv").read_bytes()))
    capsys.readouterr()
    assert run("evaluate", numbers, "--data", "-", *words, "input.json") == 0
    assert Path("input.json").read_text() == Path("file.json").read_text()
    own = "standard input"
    assert capsys.readouterr().out.replace(own, str(home / "m.csv")) in told
    assert list((tmp_path / "cache").iterdir()) == before
