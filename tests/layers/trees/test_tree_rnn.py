"""Tree-RNN and Tree-FC against their equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.layers import LeafCell, TreeFCCell, TreeRNNCell

SCHEMA = Schema(types=(NodeType("word", 0), NodeType("triple", 3)))


def run(cell: Cell, x: Tensor) -> Tensor:
    """The states of a triple over two words and an absent child."""
    builder = GraphBuilder(SCHEMA)
    words = builder.nodes("word", 2)
    builder.output(builder.node("triple", [words[1], None, words[0]]))
    builder.finish()
    dag = builder.build()
    network = Network(SCHEMA, (Up(), {"word": LeafCell(3, 4), "triple": cell}))
    features = {"word": torch.randn(2, 3), "triple": x}
    return network(Batch(dag, build_schedule(dag, [Up()])), features)["h"]


def test_tree_rnn_reads_its_children_in_order():
    cell, x = TreeRNNCell(2, 4, arity=3), torch.randn(1, 2)
    h = run(cell, x)
    children = torch.cat([h[1], torch.zeros(4), h[0]])
    torch.testing.assert_close(h[2], torch.tanh(cell.from_h(children) + cell.from_x(x[0])))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_tree_fc_is_one_layer_over_the_children(activation):
    cell = TreeFCCell(4, arity=3, activation=activation)
    h = run(cell, torch.zeros(1, 0))
    children = torch.cat([h[1], torch.zeros(4), h[0]])
    torch.testing.assert_close(h[2], getattr(torch, activation)(cell.from_h(children)))
