"""To and from networkx and PyTorch Geometric."""

from __future__ import annotations

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
    from_networkx,
    from_pyg,
    split,
    to_networkx,
    to_pyg,
)
from graphfold.dag.compare import equal
from graphfold.errors import GraphError, SchemaError

MOLECULE = Schema(
    types=(NodeType("atom", None, (Column("number", "int64", size=119),)),),
    relations=(EdgeType("bond", (Column("order", "int64", size=4),)),),
    graph_targets=(Column("solubility", unit="log mol/L"),),
)


def molecules(targets: tuple[float | None, ...] = (0.5, None)):
    builder = GraphBuilder(MOLECULE, "m.csv")
    for index, target in enumerate(targets):
        atoms = builder.nodes("atom", 3, number=[6, 6, 8], spans=[(0, 1), (1, 2), (2, 3)])
        builder.edges("bond", [0, 1, 1, 2], [1, 0, 2, 1], order=[1, 1, 2, 2])
        builder.output(*atoms)
        builder.finish(line=index + 2, solubility=target)
    return builder.build()


@pytest.mark.parametrize("seed", range(6))
def test_networkx_round_trip_with_absent_slots_and_relations(seed):
    for dag in split(random_dag(3, seed)):
        assert equal(from_networkx(to_networkx(dag), MIXED), dag)


def test_networkx_carries_names_units_and_missing_values():
    first, second = split(molecules())
    graph = to_networkx(second)
    assert graph.nodes[2]["type"] == "atom"
    assert graph.nodes[2]["number"] == 8
    assert graph.graph["line"] == 3
    assert equal(from_networkx(graph, MOLECULE), second)
    assert to_networkx(first).graph["solubility"] == 0.5


def test_networkx_takes_one_graph():
    with pytest.raises(SchemaError, match="takes one graph, not 2"):
        to_networkx(molecules())


def test_networkx_with_a_cycle_of_inputs_is_refused():
    graph = to_networkx(split(random_dag(1, 0))[0])
    node = next(n for n, data in graph.nodes(data=True) if data["type"] == "phrase")
    graph.add_edge(node, node, kind="inputs", position=9)
    with pytest.raises(GraphError, match="cycle"):
        from_networkx(graph, MIXED)


def test_pyg_round_trip_and_edge_index():
    dag = molecules()
    data = to_pyg(dag, "bond")
    assert data.edge_index.shape == (2, 8)
    pairs = set(zip(*data.edge_index[:, :4].tolist(), strict=True))
    assert pairs == {(0, 1), (1, 0), (1, 2), (2, 1)}
    back = from_pyg(data, MOLECULE, "bond")
    assert torch.equal(back.relations["bond"].index, dag.relations["bond"].index)
    assert torch.equal(back.features("atom")["number"], dag.features("atom")["number"])
    assert torch.equal(
        back.columns["relation:bond"]["order"], dag.columns["relation:bond"]["order"]
    )
    assert back.graph_column("solubility").isnan().tolist() == [False, True]
    assert back.origin.tolist() == dag.origin.tolist()


def test_pyg_inputs_round_trip_keeps_child_order():
    schema = Schema((NodeType("node", None),))
    builder = GraphBuilder(schema)
    a, b = builder.node("node"), builder.node("node")
    builder.output(builder.node("node", [b, a]))
    builder.finish()
    dag = builder.build()
    assert from_pyg(to_pyg(dag), schema).input_index.tolist() == [1, 0]


def test_plain_pyg_data_becomes_a_dag():
    from torch_geometric.data import Batch, Data

    data = Data(
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        number=torch.tensor([6, 8]),
        edge_order=torch.tensor([2, 2]),
        num_nodes=2,
    )
    dag = from_pyg(Batch.from_data_list([data, data]), MOLECULE, "bond")
    assert (dag.num_graphs, dag.num_nodes) == (2, 4)
    assert dag.output_index.tolist() == [0, 1, 2, 3]


def test_pyg_holds_one_type_only():
    with pytest.raises(SchemaError, match="holds one node type, but the schema has 3"):
        to_pyg(random_dag(1, 0))
