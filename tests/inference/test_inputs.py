"""Inputs of commands: the same records by file, pipe, gzip, pattern, folder, list and `-`."""

from __future__ import annotations

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

import pyarrow.csv
import pyarrow.parquet
import pytest
from training.tiny_runs import run, train, write_corpora, write_molecules

import graphfold
from graphfold.inference import apply, inputs
from graphfold.inference.output_folder import MOST_ROWS, NOTES
from graphfold.inference.predictor import Predictor

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def molecules(folder: Path) -> Path:
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b',c]"]
    return train(folder / "molecules", *words, *SMALL)


@pytest.fixture(scope="module")
def trees(folder: Path) -> Path:
    root = write_corpora(folder / "corpora")
    return train(folder / "trees", "experiment=sst_tree_lstm", f"data.root={root}", *SMALL)


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    """Longer than what a reader of a pipe takes at once, with a bad row at the end."""
    path = write_molecules(folder / "new.csv", num_rows=700)
    path.write_text(path.read_text() + "last,C1CC,0,0,0\n")
    assert path.stat().st_size > 2 * io.DEFAULT_BUFFER_SIZE
    return path


@pytest.fixture(scope="module")
def sentences(folder: Path) -> Path:
    path = folder / "new.txt"
    path.write_text("(2 (2 the) (3 (3 good) (2 film)))\n(2 (2 a)\n((1 dull) (1 film))\n" * 150)
    assert path.stat().st_size > io.DEFAULT_BUFFER_SIZE
    return path


def predicted(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Standard output of `graphfold predict`."""
    capsys.readouterr()
    assert run("predict", *words) == 0
    return capsys.readouterr().out


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


@pytest.mark.parametrize("kind", ["molecules", "trees", "trees --format brackets"])
def test_the_same_rows_by_every_way(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *options = kind.split()
    model = request.getfixturevalue(name)
    path = request.getfixturevalue("table" if name == "molecules" else "sentences")
    content = path.read_bytes()
    expected = predicted(capsys, model, path, *options)
    assert len(expected.splitlines()) >= 450
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(content))
    assert predicted(capsys, model, packed, *options) == expected
    for bytes_ in (content, gzip.compress(content)):
        with fed(tmp_path / "63", bytes_) as pipe:
            assert predicted(capsys, model, pipe, *options) == expected
        type_in(monkeypatch, bytes_)
        assert predicted(capsys, model, "-", *options) == expected
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / path.name).write_bytes(content)
    assert predicted(capsys, model, tmp_path / "folder", *options) == expected
    pattern = tmp_path / "fold*" / "**" / f"*{path.suffix}"
    assert predicted(capsys, model, pattern, *options) == expected
    twice = predicted(capsys, model, path, tmp_path / "folder", *options)
    header = "" if name == "trees" else expected.splitlines(keepends=True)[0]
    assert twice == expected + expected.removeprefix(header)
    assert os.listdir(tmp_path / "temporary") == []


def test_the_same_rows_by_a_list_and_a_data_frame(
    molecules: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within rounding: in a file as small as this one the cells are not compiled."""
    text = predicted(capsys, molecules, table).encode()
    expected = pyarrow.csv.read_csv(io.BytesIO(text)).column("c_pred").to_pylist()
    assert expected[-1] is None
    frame = pyarrow.csv.read_csv(table)
    model = graphfold.load(molecules)
    listed = model.predict(frame.column("smiles").to_pylist())
    found = [[told["prediction"] and told["prediction"]["c"] for told in listed]]
    found.append(model.predict(frame).column("c_pred").to_pylist())
    column = pytest.importorskip("pandas").Series(model.predict(frame.to_pandas())["c_pred"])
    found.append([None if value != value else value for value in column])
    for values in found:
        assert values[-1] is None
        assert values[:-1] == pytest.approx(expected[:-1], rel=1e-5, abs=1e-6)


def test_the_kind_of_a_table_is_said_or_told(
    molecules: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    smi, csv, odd = tmp_path / "x.smi", tmp_path / "x.csv", tmp_path / "x.smiles"
    smi.write_text("CCO ethanol\nCC ethane\n")
    csv.write_text("smiles,name\nCCO,ethanol\nCC,ethane\n")
    expected = predicted(capsys, molecules, smi)
    type_in(monkeypatch, smi.read_bytes())
    assert predicted(capsys, molecules, "-", "--input-format", "smi") == expected
    odd.write_text(smi.read_text())
    assert predicted(capsys, molecules, odd, "--input-format", "smi") == expected
    with fed(tmp_path / "pipe.smi", smi.read_bytes()) as pipe:  # its name says it
        assert predicted(capsys, molecules, pipe) == expected
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(csv), tmp_path / "x.parquet")
    type_in(monkeypatch, (tmp_path / "x.parquet").read_bytes())
    assert predicted(capsys, molecules, "-") == predicted(capsys, molecules, csv)


def test_wrong_inputs_are_told_by_their_names(
    molecules: Path,
    trees: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = tmp_path / "x.smiles"
    odd.write_text("CCO\n")
    two = (tmp_path / "a.csv", tmp_path / "b.csv")
    two[0].write_text("smiles\nCC\n")
    two[1].write_text("smiles,name\nCC,ethane\n")
    type_in(monkeypatch, b"SMILES\nCC\n")
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((molecules, odd), "x.smiles: its name does not say.*Add --input-format, which is one of"),
        ((molecules, odd, "--input-format", "smy"), "no input format 'smy'. Did you mean 'smi'"),
        ((trees, odd, "--input-format", "csv"), "the run reads none. Leave it out"),
        ((molecules, tmp_path / "no*.csv"), r"no\*.csv: no file has such a name. Correct INPUT"),
        ((molecules, "-", "-"), "read once. Give it once"),
        ((molecules, "-"), "standard input:1: no column 'smiles' among 'SMILES'"),
        ((molecules, *two), "b.csv: the columns are others.*Name a folder with --output"),
        ((molecules, tmp_path / "none.csv"), "none.csv: no such file"),
    ]
    for words, message in cases:
        capsys.readouterr()
        assert run("predict", *words) == 2
        error = capsys.readouterr().err
        assert re.search(message, error), error
        assert "/graphfold-" not in error


def test_draw_and_fingerprint_read_standard_input(
    trees: Path,
    molecules: Path,
    sentences: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    type_in(monkeypatch, sentences.read_bytes())
    assert run("draw", trees, "-") == 0
    assert run("draw", trees, sentences, "--output", "there") == 0
    pages = [Path(name, "index.html").read_text() for name in ("stdin_drawings", "there")]
    assert pages[0].split("<figure")[1:] == pages[1].split("<figure")[1:]
    type_in(monkeypatch, table.read_bytes())
    assert run("fingerprint", molecules, "-", "--output", "a.csv") == 0
    assert run("fingerprint", molecules, table, "--output", "b.csv") == 0
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def outputs(folder: Path) -> list[str]:
    """The files in a folder of outputs, without its notes."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if file.parts[0] != NOTES)


def test_a_file_for_each_input_in_a_folder(
    molecules: Path, trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_molecules(tmp_path / "in" / "a.csv", 9)
    write_molecules(tmp_path / "in" / "below" / "a.csv.gz", 7)
    (tmp_path / "b.smi").write_text("CC\nC1CC\n")
    out = tmp_path / "out"
    assert run("predict", molecules, tmp_path / "in", tmp_path / "b.smi", "--output", out) == 0
    assert "17 predicted, 1 could not be read" in capsys.readouterr().err
    assert outputs(out) == ["a.csv", "b.csv", "below/a.csv"]
    alone = predicted(capsys, molecules, tmp_path / "in" / "below" / "a.csv.gz")
    assert (out / "below" / "a.csv").read_text() == alone
    (tmp_path / "t.txt").write_text("(2 (2 the) (2 film))\n")
    assert run("predict", trees, tmp_path / "t.txt", "--output", out) == 0  # a folder that is there
    assert json.loads((out / "t.jsonl").read_text())["line"] == 1
    again = ("predict", trees, tmp_path / "t*.txt", "--output", out, "--format", "brackets")
    assert run(*again) == 0
    assert (out / "t.txt").read_text().startswith("(")


def test_outputs_that_would_be_lost_are_refused(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_molecules(tmp_path / "x" / "a.csv", 5)
    second = write_molecules(tmp_path / "y" / "a.csv", 5)
    content = first.read_bytes()
    cases = [
        ((first, second, "--output", tmp_path / "out"), "would both be written to"),
        ((first, first, "--output", tmp_path / "out"), "would both be written to"),
        ((tmp_path / "x", "--output", tmp_path / "x"), "is an input, and would be replaced"),
        ((first, second, "--output", tmp_path / "all.csv"), "has the ending of a file"),
        ((first, second, "--output", second), "Name a folder"),
    ]
    for words, message in cases:
        assert run("predict", molecules, *words) == 2
        assert message in capsys.readouterr().err
    assert first.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_several_inputs_go_on_where_they_were_broken_off(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        write_molecules(tmp_path / "in" / f"{number}.csv", 20 + number)
    words = ("predict", molecules, tmp_path / "in", "--batch-size", "8", "--output")
    assert run(*words, tmp_path / "unbroken") == 0
    counts = capsys.readouterr().err.splitlines()[-1]
    plan, allowed = Predictor.plan, iter(range(7))

    def plan_or_stop(self: Predictor, *args: Any) -> Any:
        if next(allowed, None) is None:
            raise KeyboardInterrupt
        return plan(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor, "plan", plan_or_stop)
        assert run(*words, tmp_path / "broken") == 1
    (tmp_path / "broken" / "1.csv").unlink()  # it is made again
    assert run(*words, tmp_path / "broken") == 0
    told = capsys.readouterr().err
    assert re.search(r"^0\.csv +20 +0  was there$", told, re.MULTILINE)
    assert re.search(r"^1\.csv +21 +0$", told, re.MULTILINE)
    assert told.splitlines()[-1] == counts
    assert outputs(tmp_path / "broken") == [f"{number}.csv" for number in range(4)]
    for name in outputs(tmp_path / "broken"):
        written = [tmp_path / folder / name for folder in ("unbroken", "broken")]
        assert written[0].read_bytes() == written[1].read_bytes()


def test_many_inputs_are_worked_on_side_by_side(
    molecules: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(4):
        write_molecules(tmp_path / "in" / f"{number}.csv", 20 + number, bad_rows=number)
    (tmp_path / "in" / "4.csv").write_text("SMILES\nCC\n")
    plan = Predictor.plan

    def noted(self: Predictor, *args: Any) -> Any:
        with (tmp_path / "processes").open("a") as file:
            file.write(f"{os.getpid()}\n")
        return plan(self, *args)

    def processes(out: Path, num_workers: int) -> set[str]:
        words = ("--set", f"num_workers={num_workers}", "--output", out)
        assert run("predict", molecules, tmp_path / "in", *words) == 2
        told.append(capsys.readouterr().err.replace(str(out), str(tmp_path / "one")))
        numbers = (tmp_path / "processes").read_text().split()
        (tmp_path / "processes").unlink()
        return {*numbers}

    monkeypatch.setattr(Predictor, "plan", noted)
    here, told = {str(os.getpid())}, list[str]()
    assert processes(tmp_path / "few", 2) == here  # so few bytes are not worth it
    monkeypatch.setattr(apply, "SMALL_FILE", 10)
    assert processes(tmp_path / "one", 0) == here
    assert not processes(tmp_path / "two", 2) & here
    assert told[0] == told[1] == told[2]
    for name in outputs(tmp_path / "one"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert len(outputs(tmp_path / "two")) == 4
    write_molecules(tmp_path / "in" / "5.csv", 500)  # of which all processes read records
    assert processes(tmp_path / "two", 2) == here


def times(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in outputs(folder)}


def test_given_again_only_what_changed_is_written(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5 + number, bad_rows=1)
    words = ("predict", molecules, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words) == 0
    before, told = times(tmp_path / "out"), capsys.readouterr().err
    assert run(*words) == 0
    assert times(tmp_path / "out") == before
    again = capsys.readouterr().err
    assert again.count("was there") == 3
    assert again.replace("  was there", "") == told
    write_molecules(tmp_path / "in" / "1.csv", 8)  # another content
    write_molecules(tmp_path / "in" / "3.csv", 4)  # a new one
    (tmp_path / "out" / "2.csv").write_text("cut off")
    assert run(*words) == 0
    after = times(tmp_path / "out")
    assert [name for name in after if after[name] == before.get(name)] == ["0.csv"]
    assert run(*words, "--batch-size", "2") == 0  # another work
    assert not {*times(tmp_path / "out").items()} & {*after.items()}


def test_an_input_that_cannot_be_used_does_not_stop_the_others(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5)
    (tmp_path / "in" / "1.csv").write_text("SMILES\nCC\n")
    words = ("predict", molecules, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words) == 2
    told = capsys.readouterr().err
    assert re.search(r"^1\.csv +0 +0  not written: .*1\.csv:1: no column 'smiles'", told, re.M)
    assert "error: 1 of 3 inputs cannot be used:" in told
    assert outputs(tmp_path / "out") == ["0.csv", "2.csv"]
    write_molecules(tmp_path / "in" / "1.csv", 5)
    assert run(*words) == 0
    assert capsys.readouterr().err.count("was there") == 2


def test_of_one_input_in_a_folder_nothing_is_said_but_that_it_was_there(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = write_molecules(tmp_path / "a.csv", 3), tmp_path / "out"
    out.mkdir()
    total = "3 predicted, 0 could not be read (see their reason)\n"
    for told in (total, f"{out / 'a.csv'}: was there\n{total}"):
        capsys.readouterr()
        assert run("predict", molecules, given, "--output", out) == 0
        assert capsys.readouterr().err == told
    given.write_text("SMILES\nCC\n")
    assert run("predict", molecules, given, "--output", out) == 2
    assert capsys.readouterr().err.startswith(f"error: {given}:1: no column 'smiles'")


def test_of_many_outputs_the_table_has_those_with_bad_records(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_ROWS + 2):
        write_molecules(tmp_path / "in" / f"{number}.csv", 2, bad_rows=int(number == 7))
    assert run("predict", molecules, tmp_path / "in", "--output", tmp_path / "out") == 0
    *_, first, more, total = capsys.readouterr().err.splitlines()
    assert first.split() == ["7.csv", "1", "1"]
    assert more == f"and {MOST_ROWS + 1} more"
    assert total.startswith(f"{2 * MOST_ROWS + 3} predicted, 1 could not be read")


@pytest.mark.parametrize("note", ["{", "[]", '{"work": 3}', '{"work": "", "counts": 1}'])
def test_a_damaged_note_is_passed_over(molecules: Path, tmp_path: Path, note: str) -> None:
    for number in range(2):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5)
    out = tmp_path / "out"
    words = ("predict", molecules, tmp_path / "in", "--output", out)
    assert run(*words) == 0
    before = times(out)
    (out / NOTES / "0.csv.json").write_text(note)
    assert run(*words) == 0
    assert [name for name in before if times(out)[name] != before[name]] == ["0.csv"]


def test_jobs_share_the_inputs(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Together they write what one does, byte for byte, in any order."""
    for number in range(5):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5 + number)
    words = ("predict", molecules, tmp_path / "in", "--output")
    assert run(*words, tmp_path / "one") == 0
    for number, names in ((2, ["1.csv", "4.csv"]), (3, ["2.csv"]), (1, ["0.csv", "3.csv"])):
        before = {*outputs(tmp_path / "out")} if (tmp_path / "out").exists() else set()
        assert run(*words, tmp_path / "out", "--shard", f"{number}/3") == 0
        assert sorted({*outputs(tmp_path / "out")} - before) == names
        assert f"shard {number}/3: {len(names)} of 5 inputs" in capsys.readouterr().err
    assert outputs(tmp_path / "out") == outputs(tmp_path / "one")
    for name in outputs(tmp_path / "one"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    before = times(tmp_path / "out")
    assert run(*words, tmp_path / "out") == 0  # a job that has all of them finds them there
    assert times(tmp_path / "out") == before
    assert run(*words, tmp_path / "out", "--shard", "7/7") == 0  # more jobs than inputs
    assert "shard 7/7: 0 of 5 inputs" in capsys.readouterr().err


def test_a_share_of_one_file_is_refused(
    molecules: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", molecules, table, "--shard", "1/2") == 2
    assert "new.csv is one file. Give several, a folder" in capsys.readouterr().err
    for wrong in ("0/3", "4/3", "3", "a/b", "-1/3"):
        assert run("predict", molecules, table, f"--shard={wrong}") == 2
        assert f"'{wrong}' is no share. Write 3/64" in capsys.readouterr().err


def test_a_parquet_data_set_is_a_folder(
    molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Spark and Arrow write beside its files is no input."""
    rows = pyarrow.csv.read_csv(write_molecules(tmp_path / "all.csv", 9))
    for number, year in enumerate((2019, 2020, 2020)):
        path = tmp_path / "in" / f"year={year}" / f"part-{number}.snappy.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows.slice(3 * number, 3), path)
    for name in ("_SUCCESS", "_metadata", "_common_metadata", ".part-0.crc"):
        (tmp_path / "in" / name).write_bytes(b"")
    assert run("predict", molecules, tmp_path / "in", "--output", tmp_path / "out") == 0
    wanted = [f"year={y}/part-{n}.snappy.csv" for n, y in enumerate((2019, 2020, 2020))]
    assert outputs(tmp_path / "out") == wanted
    joined = predicted(capsys, molecules, tmp_path / "in")
    assert joined.splitlines()[1:] == [
        line for name in wanted for line in (tmp_path / "out" / name).read_text().splitlines()[1:]
    ]


@pytest.mark.parametrize("form", ["csv", "parquet", "npy", "npz"])
def test_embeddings_have_a_file_for_each_input(
    form: str, molecules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        write_molecules(tmp_path / "in" / f"{number}.csv", 5 + number, bad_rows=1)
    words = ("fingerprint", molecules, tmp_path / "in", "--output", tmp_path / "out")
    assert run(*words, "--format", form) == 0
    assert "9 embedded, 2 could not be read" in capsys.readouterr().err
    assert outputs(tmp_path / "out") == [f"{number}.{form}" for number in range(2)]
    alone = tmp_path / f"alone.{form}"
    assert run("fingerprint", molecules, tmp_path / "in" / "1.csv", "--output", alone) == 0
    if form != "npz":  # it holds the time
        assert (tmp_path / "out" / f"1.{form}").read_bytes() == alone.read_bytes()
    before = times(tmp_path / "out")
    assert run(*words, "--format", form) == 0
    assert times(tmp_path / "out") == before


def test_embeddings_of_several_inputs_need_a_folder(
    molecules: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, message in (
        ((table,), "2 inputs are not embedded into one file. Name a folder"),
        ((table, "--output", tmp_path / "x.csv"), "has the ending of a file"),
        (("--output", tmp_path / "x.csv", "--format", "npy"), "Leave --format out"),
        (("--format", "npy"), "Leave --format out"),
    ):
        assert run("fingerprint", molecules, table, *more) == 2
        assert message in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_standard_input_goes_on_where_it_was_broken_off(
    molecules: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = ("predict", molecules, "-", "--batch-size", "64", "--output", tmp_path / "out.csv")
    plan, allowed = Predictor.plan, iter(range(5))

    def plan_or_stop(self: Predictor, *args: Any) -> Any:
        if next(allowed, None) is None:
            raise KeyboardInterrupt
        return plan(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor, "plan", plan_or_stop)
        type_in(monkeypatch, table.read_bytes())
        assert run(*words) == 1
    type_in(monkeypatch, table.read_bytes())
    assert run(*words) == 0
    assert "going on after 320 records" in capsys.readouterr().err
    expected = predicted(capsys, molecules, table, "--batch-size", "64")
    assert (tmp_path / "out.csv").read_text() == expected


def test_outputs_that_are_pipes_get_the_rows(
    molecules: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = predicted(capsys, molecules, table)
    fifo, texts = tmp_path / "pipe", []
    os.mkfifo(fifo)
    thread = threading.Thread(target=lambda: texts.append(fifo.read_text()))
    thread.start()
    assert run("predict", molecules, table, "--output", fifo) == 0
    thread.join()
    assert texts == [expected]
    assert fifo.is_fifo()


def shell(script: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-o", "pipefail", "-c", script, sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


PREDICT = '"$0" -m graphfold predict "$1" "$2"'


def test_a_reader_that_goes_is_no_fault(molecules: Path, table: Path, folder: Path) -> None:
    """With more rows than a pipe holds, and, of `--help`, fewer."""
    long = folder / "long.csv"
    long.write_text("smiles\n" + "CCO\n" * 20_000)
    done = shell(f"{PREDICT} | head -1", molecules, long)
    assert done.stdout.startswith("smiles,")
    assert done.stderr == ""
    assert done.returncode == 1
    done = shell('"$0" -m graphfold --help | true')
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_a_process_substitution_loses_nothing(molecules: Path, table: Path) -> None:
    done = shell(f"{PREDICT}", molecules, table)
    for script in (
        '"$0" -m graphfold predict "$1" <(cat "$2")',
        'cat "$2" | "$0" -m graphfold predict "$1" /dev/stdin',
    ):
        assert shell(script, molecules, table).stdout == done.stdout


def test_inputs_have_names_within_what_was_given(tmp_path: Path, molecules: Path) -> None:
    for name in ("a/b/c.csv", "a/d.csv"):
        write_molecules(tmp_path / name, 1)
    adapter = graphfold.load(molecules).adapter

    def names(*words: Path) -> list[str]:
        return [str(given.name) for given in inputs.find_inputs(words, adapter)]

    assert names(tmp_path) == ["a/b/c.csv", "a/d.csv"]
    assert names(tmp_path / "a" / "*.csv", tmp_path / "a" / "d.csv") == ["d.csv", "d.csv"]
    assert names(tmp_path / "*" / "**" / "*.csv") == ["a/b/c.csv", "a/d.csv"]
    assert names(Path("-")) == ["stdin"]


def test_evaluate_reads_standard_input(
    molecules: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And keeps no packed copy of what nobody can name again."""
    words = ("--on-error", "skip", "--set", f"cache_dir={tmp_path}/cache", "--json")
    assert run("evaluate", molecules, "--data", table, *words, tmp_path / "file.json") == 0
    told = capsys.readouterr().out
    before = list((tmp_path / "cache").iterdir())
    assert len(before) == 1
    for content in (table.read_bytes(), gzip.compress(table.read_bytes())):
        type_in(monkeypatch, content)
        assert run("evaluate", molecules, "--data", "-", *words, tmp_path / "input.json") == 0
        assert (tmp_path / "input.json").read_text() == (tmp_path / "file.json").read_text()
        out = capsys.readouterr().out
        assert out.replace("standard input", str(table)) == told
    assert list((tmp_path / "cache").iterdir()) == before
