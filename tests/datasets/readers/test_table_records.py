"""Tables of records: graphs as from files of their kind, targets from the cells beside them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import run, train

import graphfold
from graphfold.dag import TypedDAG
from graphfold.dag.compare import equal
from graphfold.datasets.adapter import ReadResult, read_records
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import RecordError

TREES = ["(3 (2 A) (4 (3 dull) (2 film)))", "(1 b)", "(0 (0 no) (1 (1 dull) (1 and) (2 long)))"]


def write(path: Path, records: list[Any], **columns: list[Any]) -> Path:
    """A CSV file with the column `record` and others."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["record", *columns])
        rows.writerows(zip(records, *columns.values(), strict=True))
    return path


def read(path: Path, on_error: str = "raise", **options: Any) -> ReadResult:
    adapter = make_adapter("table", **options)
    adapter = make_adapter("table", **{**options, **adapter.infer_options([path])})
    return read_records(adapter, path, adapter.records(path), on_error)


def without_targets(dag: TypedDAG) -> TypedDAG:
    """The graphs alone, wherever they come from."""
    features = [column.name for column in dag.schema.graph_features]
    graph = {name: column for name, column in dag.columns["graph"].items() if name in features}
    return replace(
        dag,
        schema=replace(dag.schema, node_targets=(), graph_targets=()),
        columns={**dag.columns, "node": {}, "graph": graph},
        origin=dag.origin * 0,
        files=("",),
    )


@pytest.mark.parametrize(
    ("kind", "options", "records"),
    [
        ("brackets", {"binarize": True}, TREES),
        ("brackets", {"num_classes": 5}, TREES),
        ("smiles", {"directed_bonds": True}, ["CCO", "c1ccccc1", "C"]),
    ],
)
def test_graphs_are_those_of_a_file_of_the_kind(tmp_path, kind, options, records):
    table = write(tmp_path / "t.csv", records, y=[0.5, -1, 2])
    found = read(table, records=kind, options=options, target_columns=["y"]).dag
    header = "smiles\n" if kind == "smiles" else ""
    alone = tmp_path / f"alone.{'csv' if header else 'txt'}"
    alone.write_text(header + "".join(f"{record}\n" for record in records))
    adapter = make_adapter(kind, **options)
    adapter = make_adapter(kind, **{**options, **adapter.infer_options([alone])})
    expected = read_records(adapter, alone, adapter.records(alone)).dag
    assert equal(without_targets(found), without_targets(expected))
    assert found.graph_column("y").tolist() == [0.5, -1, 2]
    assert found.origin[:, 1].tolist()[:2] == [2, 3]
    added, others = (made.added_nodes(expected) for made in (adapter, make_table(kind, options)))
    assert (added is None) == (others is None)
    if added is not None:
        assert added.any()
        assert added.tolist() == others.tolist()


def make_table(kind: str, options: dict[str, Any]) -> Any:
    return make_adapter("table", records=kind, options=options, target_columns=["y"])


def test_a_bad_record_has_the_place_of_its_row(tmp_path):
    records = ["(S (A a) (B b))", "(S (A a)", "(S (A a) (B b))", "", "(A a) (B b)"]
    path = write(tmp_path / "t.csv", records, y=[1, 2, "x", 4, 5])
    options = {"records": "brackets", "target_columns": ["y"]}
    with pytest.raises(RecordError, match=r"t\.csv:3: bracket opened at column 1 is never closed"):
        read(path, **options)
    result = read(path, "skip", **options)
    assert result.kept == (0,)
    assert [(error.line, error.fault) for error in result.skipped] == [
        (3, "bracket opened at column 1 is never closed"),
        (4, "target 'y' is 'x', which is not a finite number"),
        (5, "the text holds no record"),
        (6, "the text holds several records"),
    ]


def test_a_run_on_trees_with_values_beside_them(tmp_path):
    words = ["good", "bad", "dull", "bright"]
    trees = [f"(S (NP (N film)) (VP (V is) (A {words[i % 4]}) (C {i})))" for i in range(24)]
    path = write(tmp_path / "t.csv", trees, score=[(1, -1)[i % 4 in (1, 2)] for i in range(24)])
    settings = ["data=table", f"data.path={path}", "data.records=brackets", "model.hidden_size=8"]
    options = ["data.options={binarize: true}", "data.target_columns=[score]", "data.batch_size=4"]
    rate = ["optimizer.lr=0.05", "trainer.max_epochs=8", "data.split=stratified"]
    folder = train(tmp_path / "run", *settings, *options, "data.stratify_by=score", *rate)
    model = graphfold.load(folder)
    good, bad, broken = model.predict([trees[0], trees[1], "(S"])
    assert good["prediction"] > 0.5 > -0.5 > bad["prediction"]
    assert broken["reason"].startswith("bracket opened")
    assert [*model.predict({"record": trees[:2], "more": [1, 2]})["score_pred"]] == pytest.approx(
        [good["prediction"], bad["prediction"]], abs=1e-5
    )
    plain = write(tmp_path / "new.csv", trees[:2], name=["a", "b"])  # needs no targets
    assert run("predict", str(folder), str(plain), "--output", str(tmp_path / "out.csv")) == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == ["a", "b"]
    assert float(rows[1]["score_pred"]) == pytest.approx(bad["prediction"], abs=1e-5)
