"""A network over the sum of the children: against nn.Sequential, and on sets that it must learn."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.layers import (
    DeepSetCell,
)

DIGIT = NodeType("digit", 0, (Column("value", "int64", size=10),))
SCHEMA = Schema((DIGIT, NodeType("list")), graph_targets=(Column("answer", "int64", size=10),))


def test_a_node_is_a_network_over_the_sum_of_its_children() -> None:
    torch.manual_seed(0)
    leaf, inner = DeepSetCell(4, 3), DeepSetCell(0, 3, inner_size=5)
    graph = GraphBuilder(SCHEMA)
    digits = graph.nodes("digit", 3, value=[1, 2, 3])
    graph.output(graph.node("list", [*digits, digits[0]]))
    graph.finish()
    dag, x = graph.build(), torch.randn(3, 4, dtype=torch.float64)
    network = Network(SCHEMA, (Up(), {"digit": leaf, "list": inner}), run="compiled").double()
    states = network(
        Batch(dag, build_schedule(dag, [Up()])), {"digit": x, "list": x.new_zeros(1, 0)}
    )

    def rest(cell: DeepSetCell) -> nn.Sequential:
        return nn.Sequential(nn.ReLU(), cell.inner, nn.ReLU(), cell.to_h, nn.Tanh())

    assert leaf.from_x is not None
    h = rest(leaf)(functional.linear(x, leaf.from_x.weight, leaf.from_sum.bias))
    top = rest(inner)(inner.from_sum(h.sum(0) + h[0]))
    torch.testing.assert_close(states["h"], torch.cat([h, top.unsqueeze(0)]))
