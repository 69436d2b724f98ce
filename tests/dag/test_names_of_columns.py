"""Columns may have any names: the exchange keeps them, or a sentence refuses them."""

from __future__ import annotations

import random

import pytest
import torch

from graphfold.dag import (
    Column,
    EdgeType,
    GraphBuilder,
    NodeType,
    Schema,
    TypedDAG,
    from_hetero,
    from_networkx,
    from_pyg,
    split,
    to_hetero,
    to_networkx,
    to_pyg,
)
from graphfold.dag.compare import equal
from graphfold.errors import SchemaError

#: What networkx, PyTorch Geometric and the exchange itself call attributes and arguments.
NAMES = (
    *("key", "kind", "type", "span", "arity", "line", "record", "file", "outputs", "position"),
    *("node", "output", "num_nodes", "ptr", "edges", "keys", "items", "u_for_edge", "v_for_edge"),
    *("node_for_adding", "incoming_graph_data", "type_name", "inputs", "columns", "values", "self"),
    *("column_kind", "column_column_line", "column_", "relation", "source", "target", "name", "x"),
)


def named(names: tuple[str, ...], seed: int) -> TypedDAG:
    """Two graphs that have every name in every place, once as a feature, once as a target."""
    half = len(names) // 2
    columns = tuple(Column(name, "int64") for name in names)
    schema = Schema(
        types=(NodeType("a", None, columns[:half]),),
        inputs=EdgeType("inputs", columns[:half], columns[half:]),
        relations=(EdgeType("near", columns[half:], columns[:half]),),
        node_targets=columns[half:],
        graph_features=columns[:half],
        graph_targets=columns[half:],
    )
    rng = random.Random(seed)
    builder = GraphBuilder(schema, "file")

    def row() -> dict[str, int]:
        return {name: rng.randrange(90) for name in names}

    def rows(count: int) -> dict[str, list[int]]:
        return {name: [rng.randrange(90) for _ in range(count)] for name in names}

    for line in (3, 8):
        nodes = [builder.node("a", columns=row(), span=(n, n + 1)) for n in range(3)]
        builder.inputs(nodes[2], nodes[:2], columns=rows(2))
        builder.edges("near", [0, 1, 1], [1, 0, 2], columns=rows(3))
        builder.output(nodes[2], nodes[0])
        builder.finish(line, columns=row())
    return builder.build()


@pytest.mark.parametrize("seed", range(3))
def test_networkx_keeps_any_name(seed):
    for dag in split(named(NAMES, seed)):
        assert equal(from_networkx(to_networkx(dag), dag.schema), dag)


@pytest.mark.parametrize("seed", range(3))
def test_hetero_keeps_any_name(seed):
    dag = named((*NAMES, "edge_index", "batch"), seed)
    for graph in split(dag):
        assert equal(from_hetero(to_hetero(graph), dag.schema), graph)


def attributes(names: tuple[str, ...]) -> TypedDAG:
    """Two graphs of two nodes; a name is a feature of nodes."""
    schema = Schema((NodeType("a", None, tuple(Column(name, "int64") for name in names)),))
    builder = GraphBuilder(schema, "")
    for first in (1, 5):
        values = {name: first + number for number, name in enumerate(names)}
        nodes = [builder.node("a", columns=values) for _ in range(2)]
        builder.output(*nodes)
        builder.finish()
    return builder.build()


#: What `to_pyg` writes beside columns, and what `Batch` adds numbers of nodes to.
REFUSED = ("span", "num_nodes", "ptr", "edge_index", "batch", "index_of", "my_batch", "face")


def test_pyg_keeps_most_names():
    from torch_geometric.data import Batch

    dag = attributes(tuple(name for name in NAMES if name not in REFUSED))
    back = from_pyg(Batch.from_data_list([to_pyg(part) for part in split(dag)]), dag.schema)
    for name, column in dag.features("a").items():
        assert torch.equal(back.features("a")[name], column)


@pytest.mark.parametrize("name", REFUSED)
def test_pyg_refuses_names_that_it_changes_or_has(name):
    dag = attributes((name,))
    with pytest.raises(SchemaError, match=f"needs the attribute '{name}' .* Rename the column"):
        to_pyg(dag)
    assert name not in {*to_pyg(dag, ignore=[name]).keys()} - {*to_pyg(attributes(())).keys()}


def texts(of: str) -> TypedDAG:
    column = Column("smiles", "string")
    schema = Schema(
        (NodeType("a", None, (column,) if of == "type:a" else ()),),
        relations=(EdgeType("near", (column,) if of == "relation:near" else ()),),
        graph_features=(column,) if of == "graph" else (),
    )
    builder = GraphBuilder(schema, "")
    for text in ("CCO", None, "C"):
        nodes = builder.nodes("a", 2, **({"smiles": [text, "x"]} if of == "type:a" else {}))
        edges = {"smiles": [text]} if of == "relation:near" else {}
        builder.edges("near", [0], [1], columns=edges)
        builder.output(*nodes)
        builder.finish(columns={"smiles": text} if of == "graph" else {})
    return builder.build()


def test_pyg_keeps_the_strings_of_graphs():
    from torch_geometric.data import Batch, Data

    dag = texts("graph")
    data = to_pyg(dag, "near")
    assert data.smiles == ["CCO", None, "C"]
    assert equal(from_pyg(data, dag.schema, "near"), dag)
    batch = Batch.from_data_list([to_pyg(part, "near") for part in split(dag)])
    assert from_pyg(batch, dag.schema, "near").strings("graph", "smiles") == ["CCO", None, "C"]
    plain = Data(edge_index=data.edge_index[:, :1], num_nodes=2, smiles="CCO")
    assert from_pyg(plain, dag.schema, "near").strings("graph", "smiles") == ["CCO"]
    assert from_pyg(to_pyg(dag, "near", ignore=["smiles"]), dag.schema, "near").strings(
        "graph", "smiles"
    ) == [None, None, None]
    for wrong in (["a", "b"], 7, [1, 2, 3]):
        data.smiles = wrong
        with pytest.raises(SchemaError, match=r"'smiles' is .* but 3 graphs need a string each"):
            from_pyg(data, dag.schema, "near")


@pytest.mark.parametrize(("of", "key"), [("type:a", "smiles"), ("relation:near", "edge_smiles")])
def test_pyg_leaves_out_other_strings_when_it_is_asked_to(of, key):
    dag = texts(of)
    with pytest.raises(SchemaError, match=rf"Leave it out with ignore=\['{key}'\]"):
        to_pyg(dag, "near")
    data = to_pyg(dag, "near", ignore=[key])
    assert key not in data
    back = from_pyg(data, dag.schema, "near", ignore=[key])
    assert set(back.strings(of, "smiles")) == {None}
    assert torch.equal(back.relations["near"].index, dag.relations["near"].index)
