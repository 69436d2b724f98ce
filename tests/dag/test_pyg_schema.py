"""The schema of graphs of PyTorch Geometric, from their attributes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")

from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv

from graphfold.batching import Cell, Network, Rounds
from graphfold.dag import Column, EdgeType, NodeType, Schema, from_pyg, to_pyg
from graphfold.dag.compare import equal
from graphfold.errors import SchemaError


def data(num_nodes: int = 4, **changes: Any) -> Data:
    """A ring; `changes` are further attributes."""
    around = torch.arange(num_nodes)
    ends = torch.stack([around, around.roll(1)])
    given = {
        "x": torch.randn(num_nodes, 3),
        "kind": around % 3,
        "edge_attr": torch.randn(2 * num_nodes, 2),
        "y": torch.randn(1, 2),
        "smiles": f"C{num_nodes}",
        "edge_index": torch.cat([ends, ends.flip(0)], 1),
    }
    return Data(**{**given, **changes})


SCHEMA = Schema(
    types=(NodeType("node", None, (Column("kind", "int64", size=3), Column("x", shape=(3,)))),),
    relations=(EdgeType("edge", (Column("attr", shape=(2,)),)),),
    graph_features=(Column("smiles", "string"),),
    graph_targets=(Column("y", shape=(2,)),),
)


@pytest.mark.parametrize("several", [False, True])
def test_attributes_are_columns_by_their_rows(several: bool) -> None:
    items = [data(4), data(5)] if several else [data(4)]
    given = items if several else items[0]
    dag = from_pyg(given)
    assert dag.schema == SCHEMA
    assert equal(dag, from_pyg(given, SCHEMA, "edge"))
    assert dag.num_graphs == len(items)
    assert dag.strings("graph", "smiles") == [item.smiles for item in items]
    back = to_pyg(dag, "edge")
    torch.testing.assert_close(back.x, torch.cat([item.x for item in items]))
    assert equal(from_pyg(back), dag)


@pytest.mark.parametrize(
    ("changes", "column", "space"),
    [
        ({"y": torch.tensor([0, 2, 1, 0])}, Column("y", "int64", size=3), "node"),
        ({"y": torch.tensor(1.5)}, Column("y"), "graph"),
        ({"y": torch.tensor([1.0, 2.0, 3.0])}, Column("y", shape=(3,)), "graph"),
        ({"edge_y": torch.ones(8, dtype=torch.bool)}, Column("y", "bool"), "relation:edge"),
        ({"extra": torch.ones(1, 7, dtype=torch.float64)},
         Column("extra", "float64", shape=(7,)), "graph"),
    ],
)  # fmt: skip
def test_targets_and_columns_of_graphs(
    changes: dict[str, Tensor], column: Column, space: str
) -> None:
    dag = from_pyg(data(**changes))
    assert column in dag.schema.spaces()[space]
    if column.name == "y":
        targets = {
            "node": dag.schema.node_targets,
            "graph": dag.schema.graph_targets,
            "relation:edge": dag.schema.relations[0].targets,
        }
        assert column in targets[space]
    key = next(iter(changes))
    torch.testing.assert_close(dag.columns[space][column.name].flatten(), changes[key].flatten())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": torch.tensor([0, -1, 0, 2])}, "'kind' has -1, but integers are codes from 0"),
        ({"note": {"a": 1}}, "'note' is a dict, which no column holds"),
        ({"x": torch.randn(4, 3, dtype=torch.float16)}, "'x' is torch.float16, which no column"),
        ({"weight": torch.randn(8)}, "'weight' has a row for each edge.*called edge_"),
    ],
)
def test_what_is_no_column_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        from_pyg(data(**changes))
    kept = from_pyg(data(**changes), ignore=[*changes])
    names = {column.name for own in kept.schema.spaces().values() for column in own}
    assert not names & changes.keys()


class GIN(Cell):
    """h' = MLP(h + sum of the neighbours' h)."""

    def __init__(self, mlp: nn.Module, size: int) -> None:
        super().__init__()
        self.fields, self.mlp = {"h": size}, mlp

    def initial(self, x: Tensor) -> dict[str, Tensor]:
        return {"h": x}

    def forward(self, x: Tensor, children: Any) -> dict[str, Tensor]:
        return {"h": self.mlp(children.sum("h", None, 1.0))}


def test_a_network_runs_on_what_came_as_a_layer_of_theirs_does() -> None:
    mlp = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    items = [data(4), data(6)]
    theirs = Batch.from_data_list(items)
    layer, want = GINConv(mlp), theirs.x
    for _ in range(2):
        want = layer(want, theirs.edge_index)
    dag = from_pyg([item.__class__(x=item.x, edge_index=item.edge_index) for item in items])
    network = Network(dag.schema, (Rounds("edge", 2), GIN(mlp, 3)), run="compiled")
    torch.testing.assert_close(network(dag)["h"], want)
