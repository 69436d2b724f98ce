"""Files of typed graphs: what is read is what was written; it trains, and others are refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfold
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG, select, split
from graphfold.dag.compare import difference
from graphfold.datasets import load_graphs, save_graphs
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.graphs import GraphsAdapter
from graphfold.datasets.readers.spec import make_adapter
from graphfold.errors import ConfigError, DataError, RecordError

SCHEMA = Schema(
    types=(
        NodeType("city", 0, (Column("size", "float32"), Column("name", "string"))),
        NodeType("state", None, (Column("kind", "int64", size=3),)),
    ),
    relations=(EdgeType("road", (Column("km", "float32"),)),),
    node_targets=(Column("rank", "float32"),),
    graph_features=(Column("note", "string"),),
    graph_targets=(Column("cost", "float32"),),
)
TRAINING = {
    "model": "gin",
    "model.passes.0.relation": "road",
    "model.hidden_size": 8,
    "model.depth": 2,
    "trainer.max_epochs": 2,
}


def make_graphs(seed: int, count: int, targets: bool = True) -> TypedDAG:
    """Random graphs of two types of nodes, with strings, a relation and targets."""
    rng, builder = random.Random(seed), GraphBuilder(SCHEMA)
    for number in range(count):
        size = rng.randint(2, 6)
        sizes = [rng.random() for _ in range(size)]
        names = [rng.choice(["Ulm", "Jena", "Åbo"]) for _ in range(size)]
        builder.nodes("city", size, size=sizes, name=names)
        root = builder.node("state", range(size), kind=rng.randrange(3), rank=rng.random())
        begin, end = ([rng.randrange(size) for _ in range(5)] for _ in range(2))
        builder.edges("road", begin, end, km=[rng.random() for _ in range(5)])
        builder.output(root)
        values = {"cost": sum(sizes)} if targets else {}
        builder.finish(columns={"note": f"graph {number}", **values})
    return builder.build()


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    dag = make_graphs(0, 30)
    save_graphs(dag, tmp_path / "some.npz")
    found = load_graphs(tmp_path / "some.npz")
    assert difference(replace(found, origin=dag.origin, files=dag.files), dag) is None
    assert found.strings("type:city", "name") == dag.strings("type:city", "name")
    assert [found.place(k) for k in (0, 29)] == [
        (str(tmp_path / "some.npz"), 1),
        (str(tmp_path / "some.npz"), 30),
    ]


def test_a_graph_is_parsed_as_it_is(tmp_path: Path) -> None:
    dag = make_graphs(1, 10)
    save_graphs(dag, tmp_path / "some.npz")
    adapter, builder = GraphsAdapter(SCHEMA.to_dict()), GraphBuilder(SCHEMA)
    for record in adapter.records(tmp_path / "some.npz"):
        adapter.parse(record, builder)
    found = builder.build()
    assert difference(replace(found, origin=dag.origin, files=dag.files), dag) is None


def test_bad_features_of_a_graph_make_it_a_bad_record(tmp_path: Path) -> None:
    dag = make_graphs(1, 4)
    save_graphs(dag, tmp_path / "some.npz")
    rows = [np.ones((graph.num_nodes_by_type[0], 2)) for graph in split(dag)]
    rows[2][0, 1] = np.nan
    np.savez(tmp_path / "features.npz", *rows)
    source = {"file": str(tmp_path / "features.npz"), "columns": {"q": [2]}}
    adapter = make_adapter("graphs", schema=SCHEMA.to_dict(), features_from={"node": source})
    path = tmp_path / "some.npz"
    result = read_records(adapter, path, adapter.records(path), "skip")
    assert (result.kept, result.dag.num_graphs) == ((0, 1, 3), 3)
    assert [(error.line, "not a finite number" in str(error)) for error in result.skipped] == [
        (3, True)
    ]


def test_graphs_in_memory_are_trained_on_and_predicted(tmp_path: Path) -> None:
    parts = {name: make_graphs(k, 20) for k, name in enumerate(("train", "val", "test"))}
    run = graphfold.train(TRAINING, tmp_path / "run", data=parts)
    assert run.evaluate(split="test") == {k: v for k, v in run.metrics.items() if k[:5] == "test/"}
    test, model = parts["test"], run.load()
    answers = model.predict(split(test))
    predicted = torch.tensor([answer["prediction"] for answer in answers])
    error = (predicted - test.graph_column("cost")).square().mean().sqrt()
    assert error.item() == pytest.approx(run.metrics["test/rmse"], rel=1e-4)
    # Other graphs of one batch do not count, and targets need not be there.
    alone = model.predict([select(make_graphs(2, 20, targets=False), [7])])
    assert alone[0]["prediction"] == pytest.approx(answers[7]["prediction"], rel=1e-5)


def test_a_run_on_graphs_without_parts_is_that_of_their_file(tmp_path: Path) -> None:
    dag = make_graphs(3, 40)
    save_graphs(dag, tmp_path / "mine.npz")
    by_file = {**TRAINING, "data": "graphs", "data.path": str(tmp_path / "mine.npz")}
    runs = [
        graphfold.train(TRAINING, tmp_path / "memory", data=dag),
        graphfold.train(by_file, tmp_path / "file"),
    ]
    assert runs[0].metrics == runs[1].metrics


def test_other_files_are_refused(tmp_path: Path) -> None:
    path, adapter = tmp_path / "x.npz", GraphsAdapter(SCHEMA.to_dict())
    path.write_text("no archive")
    with pytest.raises(DataError, match=r"x\.npz.*holds no graphs.*save_graphs"):
        load_graphs(path)
    np.savez(path, numbers=np.arange(3))
    with pytest.raises(DataError, match="holds no graphs"):
        load_graphs(path)
    np.savez(path, description=np.array([{"code": 1}], dtype=object))
    with pytest.raises(DataError, match="holds no graphs"):  # a pickle is not opened
        load_graphs(path)
    dag = make_graphs(0, 3)
    dag.input_index[0] = 10_000
    save_graphs(dag, path)
    with pytest.raises(DataError, match=r"x\.npz: its graphs are damaged"):
        load_graphs(path)
    save_graphs(GraphBuilder(SCHEMA).build(), path)
    with pytest.raises(DataError, match="holds no graph"):
        [*adapter.records(path)]
    other = GraphBuilder(Schema((NodeType("town", 0),)))
    other.output(other.node("town"))
    other.finish()
    save_graphs(other.build(), path)
    with pytest.raises(DataError, match=r"(?s)another schema:.*town.*city"):
        [*adapter.records(path)]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("CCO", "is no graph"),
        (make_graphs(0, 2), "holds 2 graphs"),
        (GraphBuilder(SCHEMA).build(), "holds 0 graphs"),
    ],
)
def test_what_is_no_graph_is_no_record(item: object, said: str) -> None:
    with pytest.raises(RecordError, match=said):
        GraphsAdapter(SCHEMA.to_dict()).record_of(item)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": make_graphs(0, 3)}, "stored in the run folder. Give a folder"),
        ({"data": {"train": "x.csv"}, "folder": "run"}, "a TypedDAG is needed"),
        ({"data": make_graphs(0, 3), "folder": "run", "config": {"model": {}}}, "Leave out data"),
    ],
)
def test_graphs_that_cannot_be_trained_on(
    arguments: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        graphfold.train(**{"config": TRAINING, **arguments})  # type: ignore[arg-type]
