"""Rows of many numbers, and many rows: whole vectors, parts of one, and sums that go on."""

from __future__ import annotations

import pytest
import torch
from compiled_checks import assert_same_both_ways, states_and_gradients
from torch import nn
from torch.nn import functional as F

from graphfold.batching import Cell, Network, Up
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG

NUM_CHILDREN = (0, 1, 2, 15, 16, 17, 33)
SCHEMA = Schema(
    types=(NodeType("word", 0), NodeType("phrase", None)),
    inputs=EdgeType("inputs", (Column("weight", "float64"),)),
)


def graph() -> TypedDAG:
    builder = GraphBuilder(SCHEMA)
    words = list(builder.nodes("word", 35))
    for count in NUM_CHILDREN:
        phrase = builder.node("phrase")
        builder.inputs(phrase, words[-count:] if count else [], weight=[0.1 * count] * count)
        words.append(phrase)
    builder.output(words[-1])
    builder.finish()
    return builder.build()


class Word(Cell):
    arity = 0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fields = {"h": width}

    def forward(self, x, children):
        return {"h": torch.tanh(x)}


class Phrase(Cell):
    """Sums of children, plain, weighted and of messages, and products with all their ends."""

    arity = None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fields = {"h": width}
        self.linear = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x, children):
        plain, with_row, with_relu, with_both = self.linear
        messages = children.sum(F.relu(children.rows("h") - children.expand(x)))
        total = children.sum("h", children.edge["weight"]) + messages
        h = with_both(F.relu(with_relu(total))) + children.sum("h")
        return {"h": plain(F.relu(h)) + F.relu(with_row(total) + x)}


@pytest.mark.parametrize("width", [1, 5, 16, 37, 64, 200])
def test_any_width(width):
    torch.manual_seed(width)
    dag, cells = graph(), {"word": Word(width), "phrase": Phrase(width)}
    network = Network(SCHEMA, (Up(), cells)).double()
    x = {
        t.name: torch.randn(count, width, dtype=torch.float64)
        for t, count in zip(SCHEMA.types, dag.num_nodes_by_type, strict=True)
    }
    assert_same_both_ways(network, dag, x, reference="reference", rtol=1e-9)


def test_relu_of_a_product_keeps_what_is_no_number():
    torch.manual_seed(0)
    dag, width = graph(), 20
    network = Network(SCHEMA, (Up(), {"word": Word(width), "phrase": Phrase(width)})).double()
    x = {
        t.name: torch.full((count, width), torch.nan, dtype=torch.float64)
        for t, count in zip(SCHEMA.types, dag.num_nodes_by_type, strict=True)
    }
    actual = {}
    for network.run in ("compiled", "eager"):
        actual[network.run] = states_and_gradients(network, dag, x)
    assert actual["compiled"]["h"].isnan().all()
    torch.testing.assert_close(actual["compiled"], actual["eager"], equal_nan=True)
