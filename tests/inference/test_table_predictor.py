"""TablePredictor: the rows of the command in tables of Arrow, of a schema known before."""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from training.tiny_runs import MOLECULES, run, train, write_molecules

import graphfold
from graphfold import TablePredictor
from graphfold.errors import CheckpointError, ConfigError, DataError
from graphfold.inference import apply, table_predictor
from graphfold.layers import RegressionHead

SMALL = ["model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8"]

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def molecules(folder: Path) -> Case:
    table = write_molecules(folder / "m.csv", 60)
    fractions = "data.fractions=[0.4,0.4,0.2]"
    words = ["data=smiles", "model=dmpnn", f"data.path={table}", "data.target_columns=['a b',c]"]
    model = train(folder / "molecules", *words, fractions, *SMALL)
    new = write_molecules(folder / "new.csv", 70, bad_rows=3)
    with new.open() as file:
        rows = list(csv.DictReader(file))
    return Case(model, new, pa.Table.from_pylist(rows), None, "a b_pred")


def assays(folder: Path) -> Case:
    """Yes or no of molecules, whose classes are words."""
    path = folder / "assays.csv"
    lines = [f"{smiles},{'yn'[row % 2]}" for row, smiles in enumerate(MOLECULES * 4)]
    path.write_text("\n".join(["SMILES,toxic", *lines, "C1CC,y"]) + "\n")
    words = ["data=smiles", f"data.path={path}", "data.target_columns=[toxic]"]
    more = ["data.smiles_column=SMILES", "data.on_error=skip", "data.task=classification"]
    model = train(folder / "assays", *words, *more, *SMALL)
    table = pa.table({"SMILES": [line.split(",")[0] for line in lines] + ["C1CC"]})
    new = folder / "assays_new.csv"
    new.write_text("\n".join(["SMILES", *table["SMILES"].to_pylist()]) + "\n")
    return Case(model, new, table, None, "toxic_pred")


def trees(folder: Path) -> Case:
    tree = ["(2 (2 the) (3 (3 good) (2 film)))", "(1 (1 dull) (2 film))", "(4 (4 bright) (2 film))"]
    path = folder / "trees.txt"
    path.write_text("\n".join(tree * 12) + "\n")
    words = ["data=brackets", f"data.path={path}", "+data.num_classes=5"]
    model = train(folder / "trees", *words, "model=binary_tree_lstm", *SMALL)
    texts = [*tree * 10, "(1 (1 dull) (9 film))", "(2 (2 a) (2 film))"]
    new = folder / "new.txt"
    new.write_text("\n".join(texts) + "\n")
    table = pa.table({"id": range(32), "text": texts})
    return Case(model, new, table, "text", "label_pred")


MAKERS: dict[str, Callable[[Path], Case]] = {
    "molecules": molecules,
    "assays": assays,
    "trees": trees,
}


def make(name: str, folder: Path) -> Case:
    folder.mkdir(exist_ok=True)
    return MAKERS[name](folder)


@pytest.fixture(scope="module", params=MAKERS)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    return make(request.param, folder / "cases")


@pytest.fixture(scope="module")
def one(folder: Path) -> Case:
    return make("molecules", folder / "one")


def commanded(case: Case, output: Path, patch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The rows that the command writes for the file of a case, as for a large one."""
    patch.setattr(apply, "SMALL_FILE", 0)
    assert run("predict", case.run, case.path, "--output", output, "--batch-size", str(BATCH)) == 0
    with output.open() as file:
        if case.path.suffix == ".csv":
            yield from csv.DictReader(file)
        else:
            yield from map(json.loads, file)


def test_the_rows_are_those_of_the_command_bit_for_bit(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_schema_is_known_without_data(case: Case) -> None:
    """No batch has another one: not an empty one, nor one whose records are all bad."""
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


def test_an_instance_is_small_and_loads_once_in_a_process(
    one: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_another_process_gives_the_same(one: Case, tmp_path: Path) -> None:
    predictor = TablePredictor(one.run, batch_size=BATCH)
    (tmp_path / "predictor").write_bytes(pickle.dumps(predictor))
    with pa.ipc.new_file(tmp_path / "in", one.table.schema) as file:
        file.write(one.table)
    script = (
        "import pickle, sys, pyarrow as pa\n"
        "assert 'torch' not in sys.modules\n"
        "predict = pickle.load(open('predictor', 'rb'))\n"
        "table = predict(pa.ipc.open_file('in').read_all())\n"
        "with pa.ipc.new_file('out', table.schema) as file: file.write(table)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    assert pa.ipc.open_file(tmp_path / "out").read_all().equals(predictor(one.table))


def test_a_forked_process_does_not_wait_for_threads_that_it_has_not(
    one: Case, tmp_path: Path
) -> None:
    """As those of `datasets.map(num_proc=2)` are, whose parent has computed with two threads."""
    (tmp_path / "predictor").write_bytes(pickle.dumps(TablePredictor(one.run)))
    with pa.ipc.new_file(tmp_path / "in", one.table.schema) as file:
        file.write(one.table)
    script = (
        "import multiprocessing, pickle, pyarrow as pa, torch\n"
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


def test_a_table_does_not_depend_on_those_before(
    one: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How batches are planned is decided by each table anew."""
    predictor = TablePredictor(one.run)
    model, _ = predictor._model.load()
    model.policy, model.share = "agenda", False  # as after another table
    chosen = []
    plan = type(model.module).plan

    def noting(self: Any, dag: Any, policy: str = "depth", share: bool = False) -> Any:
        chosen.append((policy, share))
        return plan(self, dag, policy, share)

    monkeypatch.setattr(type(model.module), "plan", noting)
    predictor(one.table)
    assert chosen[-1] == ("depth", True)


def test_other_tables_come_back_as_they_are(one: Case) -> None:
    predictor, want = TablePredictor(one.run), None
    pandas = pytest.importorskip("pandas")
    want = predictor(one.table)
    frame = predictor(one.table.to_pandas())
    assert isinstance(frame, pandas.DataFrame)
    declared = predictor.schema(one.table.schema).empty_table().to_pandas().dtypes
    assert frame.dtypes.to_dict() == declared.to_dict()
    bad = predictor(one.table.slice(0, 3).to_pandas())
    assert bad["reason"].str.len().gt(0).all()
    assert bad.dtypes.to_dict() == declared.to_dict()
    pandas.testing.assert_frame_equal(frame, want.to_pandas())
    assert predictor(one.table.to_pydict()) == want.to_pydict()


def test_wrong_uses_are_told_where_it_is_made(one: Case, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="absent"):
        TablePredictor(folder / "absent")
    with pytest.raises(ConfigError, match="no_such"):
        TablePredictor(one.run, no_such=1)
    predictor = TablePredictor(one.run)
    with pytest.raises(DataError, match="no column 'smiles' among 'x'"):
        predictor.schema(pa.schema([("x", pa.string())]))
    with pytest.raises(DataError, match="a list is no table"):
        predictor(["CC"])
    with pytest.raises(ConfigError, match="Load it with smiles_column="):
        TablePredictor(one.run, "smiles")(one.table)
    renamed = one.table.rename_columns([n.upper() for n in one.table.column_names])
    assert TablePredictor(one.run, smiles_column="SMILES")(renamed)["reason"].to_pylist()[-1] == ""
    assert "molecules" in repr(predictor)


def test_a_column_that_is_not_there_is_told(folder: Path) -> None:
    case = make("trees", folder / "column")
    with pytest.raises(DataError, match=r"no column 'Text'.*Did you mean 'text'\?"):
        TablePredictor(case.run, "Text")(case.table)


def test_a_run_that_was_trained_anew_is_refused(folder: Path) -> None:
    case = make("molecules", folder / "anew")
    content = pickle.dumps(TablePredictor(case.run))
    checkpoint = case.run / "checkpoints" / "best.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes() + b"more")
    table_predictor._load.cache_clear()
    with pytest.raises(CheckpointError, match="another checkpoint than when"):
        pickle.loads(content)(case.table)


def test_a_head_may_say_what_its_columns_hold(one: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    head = TablePredictor(one.run)._model.load()[0].trained.head
    monkeypatch.setattr(RegressionHead, "table_types", [str, *head.table_types[1:]])
    with pytest.raises(ConfigError, match=r"'a b_pred' is declared as str.*Let its table_types"):
        TablePredictor(one.run)(one.table)
