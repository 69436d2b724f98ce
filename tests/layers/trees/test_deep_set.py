"""A network over the sum of the children: against nn.Sequential, and on sets that it must learn."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.layers import (
    ClassificationHead,
    DeepSetCell,
    FeatureEncoder,
    GraphModel,
    RootReadout,
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
    network = Network(SCHEMA, [Up()], [{"digit": leaf, "list": inner}], fuse=True).double()
    states = network(
        Batch(dag, build_schedule(dag, [Up()])), {"digit": x, "list": x.new_zeros(1, 0)}
    )

    def rest(cell: DeepSetCell) -> nn.Sequential:
        return nn.Sequential(nn.ReLU(), cell.inner, nn.ReLU(), cell.to_h, nn.Tanh())

    assert leaf.from_x is not None
    h = rest(leaf)(functional.linear(x, leaf.from_x.weight, leaf.from_sum.bias))
    top = rest(inner)(inner.from_sum(h.sum(0) + h[0]))
    torch.testing.assert_close(states["h"], torch.cat([h, top.unsqueeze(0)]))


def test_it_learns_the_median_of_a_set() -> None:
    torch.manual_seed(0)
    lists = torch.randint(0, 10, (300, 3))
    graph = GraphBuilder(SCHEMA)
    for values in lists.tolist():
        graph.output(graph.node("list", graph.nodes("digit", 3, value=values)))
        graph.finish(answer=sorted(values)[1])
    dag = graph.build()
    cell = partial(DeepSetCell, hidden_size=32)
    model = GraphModel(
        SCHEMA,
        partial(FeatureEncoder, size=16),
        [Up()],
        [{"digit": cell, "list": cell}],
        RootReadout,
        ClassificationHead,
    )
    batch = Batch(dag, build_schedule(dag, model.passes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(200):
        raw = model(batch)
        optimizer.zero_grad()
        functional.cross_entropy(raw, lists.median(1).values).backward()
        optimizer.step()
    assert (raw.argmax(1) == lists.median(1).values).float().mean() > 0.95
