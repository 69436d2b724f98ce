"""To and from HeteroData of PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_cells import SCHEMA as MIXED
from engine_cells import random_dag

from graphfold.dag import (
    Column,
    EdgeType,
    GraphBuilder,
    NodeType,
    Schema,
    TypedDAG,
    from_hetero,
    from_pyg,
    split,
    to_hetero,
    to_pyg,
)
from graphfold.dag.compare import equal
from graphfold.errors import GraphError, SchemaError

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")

TEXTS = Schema(
    types=(
        NodeType("word", 0, (Column("form", "string"),)),
        NodeType("phrase", 2, (Column("vector", "float32", shape=(3,)),)),
    ),
    inputs=EdgeType("inputs", (Column("role", "string"),)),
    relations=(EdgeType("next", (Column("gap", "int64"),)),),
    node_targets=(Column("label", "int64", size=5),),
    graph_features=(Column("source", "string"),),
    graph_targets=(Column("score", "float32"), Column("both", "float32", shape=(2,))),
)


def texts() -> TypedDAG:
    builder = GraphBuilder(TEXTS, "t.txt")
    for number, score in enumerate((0.5, None)):
        top = builder.node("phrase", span=(0, 7), vector=[1, 2, 3], label=4)
        first, second = builder.nodes("word", 2, form=["a", None], label=[None, 3])
        builder.inputs(top, [None, second], role=[None, "head"])
        builder.edges("next", [first, second], [second, first], gap=[1, 2])
        builder.output(second, top)
        builder.finish(line=number + 3, source="a film", score=score, both=[1, 2])
    return builder.build()


@pytest.mark.parametrize("seed", range(4))
def test_round_trips_of_one_of_several_and_of_a_batch(seed):
    from torch_geometric.data import Batch

    dag = random_dag(3, seed)
    graphs = [to_hetero(graph) for graph in split(dag)]
    for graph, expected in zip(graphs, split(dag), strict=True):
        assert equal(from_hetero(graph, MIXED), expected)
    assert equal(from_hetero(graphs, MIXED), dag)
    kinds = {kind for graph in graphs for kind in graph.edge_types}
    batch = Batch.from_data_list([to_hetero(graph, sorted(kinds)) for graph in split(dag)])
    assert equal(from_hetero(batch, MIXED), dag)


def test_what_stands_where():
    first, second = split(texts())
    data = to_hetero(first)
    assert data.validate()
    assert data.node_types == ["word", "phrase"]
    assert data["word"].form == ["a", None]
    assert data["phrase"].vector.tolist() == [[1, 2, 3]]
    assert data["word"].label.tolist() == [-1, 3]
    assert data["word", "inputs", "phrase"].edge_index.tolist() == [[1], [0]]
    assert data["word", "inputs", "phrase"].position.tolist() == [1]
    assert data["word", "inputs", "phrase"].role == ["head"]
    assert data["word", "next", "word"].gap.tolist() == [1, 2]
    assert data["phrase"].output.tolist() == [1]
    assert data.score.tolist() == [0.5]
    assert (data.line, data["source"]) == (3, ["a film"])
    for graph in (first, second):
        assert equal(from_hetero(to_hetero(graph), TEXTS), graph)
    assert from_hetero([], TEXTS).num_graphs == 0


def plain(**changes: Any) -> Any:
    """A graph as people make one, with nothing of graphfold's; None leaves an attribute out."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["word"].num_nodes = 3
    data["word"].form = ["a", "b", "c"]
    data["phrase"].vector = torch.ones(1, 3)
    data["word", "inputs", "phrase"].edge_index = torch.tensor([[2, 0], [0, 0]])
    data.score, data.both = torch.tensor([1.5]), torch.tensor([[1.0, 2.0]])
    for key, value in changes.items():
        kind, _, name = key.partition("__")
        place = {"inputs": ("word", "inputs", "phrase"), "graph": None}.get(kind, kind)
        if place is None:
            data[name] = value
        else:
            data[place][name] = value
    return data


def test_a_graph_made_elsewhere_needs_columns_and_edges_alone():
    dag = from_hetero(plain(), TEXTS)
    assert dag.op_type.tolist() == [0, 0, 0, 1]
    assert dag.strings("type:word", "form") == ["a", "b", "c"]
    assert dag.input_index.tolist() == [2, 0]  # in the order of the edges
    assert dag.output_index.tolist() == [0, 1, 2, 3]
    assert dag.graph_column("score").tolist() == [1.5]
    assert dag.graph_column("both").tolist() == [[1, 2]]
    for value in (2.5, torch.tensor(2.5), torch.tensor([[2.5]])):
        assert from_hetero(plain(graph__score=value), TEXTS).graph_column("score").item() == 2.5
    labels = from_hetero(plain(word__label=torch.tensor([[1], [0], [2]])), TEXTS)
    assert labels.node_targets["label"].tolist() == [1, 0, 2, -1]
    assert equal(from_hetero(plain(word__x=torch.ones(3)), TEXTS, ignore=["x"]), dag)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"word__frm": ["a"] * 3}, SchemaError, "'frm', which is no column of .*mean 'form'"),
        ({"word__form": ["a"] * 2}, SchemaError, "'form' has 2 rows for 3. Give one row for each"),
        ({"word__form": "abc"}, SchemaError, "'form' has a str for 3"),
        ({"phrase__vector": torch.ones(1, 4)}, SchemaError, "vector"),
        ({"verb__num_nodes": 1}, SchemaError, "the type 'verb', which the schema lacks.* It has"),
        ({"graph__scor": torch.ones(1)}, SchemaError, "'scor'.*Did you mean 'score'"),
        ({"inputs__rol": ["x", "y"]}, SchemaError, "'rol'.*Did you mean 'role'"),
        (
            {"inputs__edge_index": torch.tensor([[3, 0], [0, 0]])},
            GraphError,
            "an edge of 'inputs' names the node 3 of the type 'word', which is not there",
        ),
        ({"inputs__position": torch.tensor([1, 1])}, GraphError, "have the positions .1, 1."),
    ],
)
def test_what_does_not_fit_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        from_hetero(plain(**changes), TEXTS)


def test_each_way_names_the_other():
    with pytest.raises(SchemaError, match="Use to_hetero or to_networkx, which keep them"):
        to_pyg(texts())
    with pytest.raises(SchemaError, match="Of HeteroData use from_hetero"):
        from_pyg(plain(), Schema(types=(NodeType("a"),)))
    for wrong in (3, "text", {"a": 1}):
        with pytest.raises(SchemaError, match="from_hetero takes a HeteroData or several, not a"):
            from_hetero(wrong, TEXTS)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="takes one graph, not 2"):
        to_hetero(texts())


def test_from_pyg_reads_a_data_set():
    schema = Schema(
        types=(NodeType("atom", None, (Column("x", "float32", shape=(2,)),)),),
        relations=(EdgeType("bond"),),
        graph_targets=(Column("y"),),
    )
    builder = GraphBuilder(schema)
    for size in (2, 3, 1):
        builder.nodes("atom", size, x=[[float(size), n] for n in range(size)])
        builder.edges("bond", range(size - 1), range(1, size))
        builder.output(*range(size))
        builder.finish(y=size)
    dag = builder.build()
    items = [to_pyg(graph, "bond") for graph in split(dag)]
    for several in (items, tuple(items), iter(items), DataSet(items)):
        assert equal(from_pyg(several, schema, "bond"), dag)
    with pytest.raises(SchemaError, match="not a list. Give a Data"):
        from_pyg([], schema, "bond")
    with pytest.raises(SchemaError, match="not a list. Of HeteroData use from_hetero"):
        from_pyg([plain()], schema, "bond")


class DataSet(torch.utils.data.Dataset[Any]):
    """A data set as torch and PyTorch Geometric have them: by position."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.items[number]
