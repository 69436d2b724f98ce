"""TablePredictor: the rows of the command in tables of Arrow, of a schema known before."""

from __future__ import annotations

import csv
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from inference.conftest import SMALL, Trained
from training.tiny_runs import MOLECULES, run, write_molecules

import graphfold
from graphfold import TablePredictor
from graphfold.errors import CheckpointError, ConfigError, DataError
from graphfold.inference import predict_files, table_predictor

#: So many records the command predicts at once, and a table of the tests has.
BATCH = 16


class Case(NamedTuple):
    """A run and new records, in a file and in a table.

    Args:
        run: the run folder.
        path: the file, with bad records.
        table: the same records.
        column: the column of the records, where the table has others.
        pred: the column of the predictions that the command's `prediction` gives.
    """

    run: Path
    path: Path
    table: pa.Table
    column: str | None
    pred: str


def rows_of(path: Path) -> pa.Table:
    with path.open() as file:
        return pa.Table.from_pylist(list(csv.DictReader(file)))


@pytest.fixture
def one(numbers: Path, tmp_path: Path) -> Case:
    """Molecules; three of them cannot be read."""
    new = write_molecules(tmp_path / "tables.csv", 70, bad_rows=3)
    return Case(numbers, new, rows_of(new), None, "a b_pred")


@pytest.fixture
def assays(trained: Trained, tmp_path: Path) -> Case:
    """A target of two classes that are words."""
    path, new = tmp_path / "assays.csv", tmp_path / "assays_new.csv"
    lines = [f"{smiles},{'yn'[row % 2]}" for row, smiles in enumerate(MOLECULES * 4)]
    path.write_text("\n".join(["SMILES,toxic", *lines]) + "\n")
    words = ["data=smiles", f"data.path={path}", "data.target_columns=[toxic]"]
    more = ["data.smiles_column=SMILES", "data.task=classification"]
    model = trained("assays", *words, *more, *SMALL)
    new.write_text("\n".join(["SMILES", *(line.split(",")[0] for line in lines), "C1CC"]) + "\n")
    return Case(model, new, rows_of(new), None, "toxic_pred")


@pytest.fixture
def texts(trees: Path, tmp_path: Path) -> Case:
    """Trees, in the column of a table that has others."""
    some = ["(2 (2 the) (3 (3 good) (2 film)))", "(1 (1 dull) (2 film))", "(4 (4 bright) (2 film))"]
    lines = [*some * 10, "(1 (1 dull) (9 film))", "(2 (2 a) (2 film))"]
    new = tmp_path / "tables.txt"
    new.write_text("\n".join(lines) + "\n")
    table = pa.table({"id": range(32), "text": lines})
    return Case(trees, new, table, "text", "label_pred")


@pytest.fixture(params=["one", "assays", "texts"])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.getfixturevalue(request.param)
    return found


def commanded(case: Case, output: Path, patch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The rows that the command writes for the file of a case, as for a large one."""
    patch.setattr(predict_files, "SMALL_FILE", 0)
    assert run("predict", case.run, case.path, "--output", output, "--batch-size", str(BATCH)) == 0
    with output.open() as file:
        if case.path.suffix == ".csv":
            yield from csv.DictReader(file)
        else:
            yield from map(json.loads, file)


def test_the_rows_are_those_of_the_command_bit_for_bit(case, tmp_path, monkeypatch):
    predictor = TablePredictor(case.run, case.column, batch_size=BATCH)
    found = list(predictor.stream(case.table.to_batches(max_chunksize=BATCH)))
    assert all(batch.schema == predictor.schema(case.table.schema) for batch in found)
    table = pa.Table.from_batches(found)
    assert table.select(case.table.column_names).equals(case.table)
    rows, added = table.to_pylist(), table.column_names[case.table.num_columns :]
    wanted = list(commanded(case, tmp_path / "out", monkeypatch))
    assert len(rows) == len(wanted) == case.table.num_rows
    is_bad = [bool(row["reason"]) for row in rows]
    assert any(is_bad)
    for row, want in zip(rows, wanted, strict=True):
        assert row["reason"] == want["reason"]
        if row["reason"]:
            assert [row[name] for name in added] == [None] * (len(added) - 1) + [row["reason"]]
        elif case.path.suffix == ".csv":
            told = {name: "" if row[name] is None else str(row[name]) for name in added}
            assert told == {name: want[name] for name in added}
        elif "nodes" in want:
            assert row[case.pred] == [node["prediction"] for node in want["nodes"]]
        else:
            assert row[case.pred] == want["prediction"]


def test_the_schema_is_known_without_data(case):
    """Also of an empty table, and of one without a readable record."""
    predictor = TablePredictor(case.run, case.column)
    schema = predictor.schema(case.table.schema)
    assert schema.names == [*case.table.column_names, *schema.names[case.table.num_columns :]]
    assert schema.field("reason").type == pa.string()
    kinds = {
        "a b_pred": pa.float64(),
        "toxic_pred": pa.string(),
        "label_pred": pa.list_(pa.int64()),
    }
    assert schema.field(case.pred).type == kinds[case.pred]
    empty = case.table.slice(0, 0)
    assert predictor(empty).schema == schema
    assert predictor(empty).num_rows == 0
    reasons = predictor(case.table)["reason"].to_pylist()
    bad = case.table.filter([bool(reason) for reason in reasons])
    assert predictor(bad).schema == schema
    for batch in case.table.to_batches(max_chunksize=7):
        assert isinstance(predictor(batch), pa.RecordBatch)
        assert predictor(batch).schema == schema


def test_an_instance_is_small_and_loads_once_in_a_process(one, monkeypatch):
    content = pickle.dumps(TablePredictor(one.run))
    assert len(content) < 1000
    loaded = []

    def load(*args: Any, **options: Any) -> Any:
        loaded.append(args[0])
        return graphfold.load(*args, **options)

    monkeypatch.setattr(table_predictor, "load", load)
    table_predictor._load.cache_clear()
    with ThreadPoolExecutor(4) as threads:
        copies = [pickle.loads(content) for _ in range(8)]
        found = list(threads.map(lambda copy: copy(one.table), copies))
    assert len(loaded) == 1
    assert all(table.equals(found[0]) for table in found)
    other = pickle.loads(pickle.dumps(TablePredictor(one.run, batch_size=4)))
    assert other(one.table)["reason"].equals(found[0]["reason"])
    assert len(loaded) == 2


@pytest.mark.slow
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not(one, tmp_path):
    """Such as the processes of `datasets.map(num_proc=2)`, after the parent used two threads."""
    (tmp_path / "predictor").write_bytes(pickle.dumps(TablePredictor(one.run)))
    with pa.ipc.new_file(tmp_path / "in", one.table.schema) as file:
        file.write(one.table)
    script = (
        "import multiprocessing, pickle, sys, pyarrow as pa\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "torch.set_num_threads(2)\n"
        "predict = pickle.load(open('predictor', 'rb'))\n"
        "table = pa.ipc.open_file('in').read_all()\n"
        "torch.rand(900, 900) @ torch.rand(900, 900) + torch.rand(900, 900).exp()\n"
        "want = predict(table)\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    assert all(found.equals(want) for found in pool.map(predict, [table] * 4))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, start_new_session=True)
    try:
        assert process.wait(timeout=120) == 0
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


def test_wrong_uses_are_refused_where_it_is_made(one, texts, tmp_path):
    with pytest.raises(CheckpointError, match="absent"):
        TablePredictor(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no_such"):
        TablePredictor(one.run, no_such=1)
    predictor = TablePredictor(one.run)
    with pytest.raises(DataError, match="no column 'smiles' among 'x'"):
        predictor.schema(pa.schema([("x", pa.string())]))
    with pytest.raises(DataError, match="a list is no table"):
        predictor(["CC"])
    with pytest.raises(ConfigError, match="Load it with smiles_column="):
        TablePredictor(one.run, "smiles")(one.table)
    with pytest.raises(DataError, match=r"no column 'Text'.*Did you mean 'text'\?"):
        TablePredictor(texts.run, "Text")(texts.table)
    renamed = one.table.rename_columns([n.upper() for n in one.table.column_names])
    assert TablePredictor(one.run, smiles_column="SMILES")(renamed)["reason"].to_pylist()[-1] == ""
    assert "numbers" in repr(predictor)


def test_a_run_that_was_trained_anew_is_refused(one, tmp_path):
    copied = Path(shutil.copytree(one.run, tmp_path / "run"))
    content = pickle.dumps(TablePredictor(copied))
    checkpoint = copied / "checkpoints" / "best.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes() + b"more")
    table_predictor._load.cache_clear()
    with pytest.raises(CheckpointError, match="another checkpoint than when"):
        pickle.loads(content)(one.table)
