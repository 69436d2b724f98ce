"""Random cells on random graphs, and the shapes that break things, against one node at a time."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from compiled_checks import assert_same_both_ways, states_and_gradients
from engine_cells import chain as chain_of_phrases
from engine_cells import make_network, make_x
from hypothesis import strategies as st
from random_cells import (
    PARTS,
    READS,
    SCHEMA,
    SIZE,
    STACKS,
    SUMS,
    features,
    random_cells,
)
from strategies import dags, empty, with_empty_graph
from thinned import random_programs
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import EngineError

pytestmark = pytest.mark.usefixtures("backend")

POLICIES = ("depth", "critical_path", "agenda", "one_by_one")
DOWN_PARTS = (*PARTS, *SUMS, *(name for name in READS if name != "label"), "previous")
UP = {
    "word": (0, ()),
    "phrase": (None, (*SUMS, *(name for name in READS if name != "label"))),
    "pair": (2, (*SUMS, *STACKS)),
}


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Up and down, with random cells and a learned absent child."""
    up = {name: draw(random_cells(n, (*PARTS, *parts))) for name, (n, parts) in UP.items()}
    down = {name: draw(random_cells(None, DOWN_PARTS)) for name in ("word", "phrase")}
    for cell in (*up.values(), *down.values()):
        cell.parts[0].kind = draw(st.sampled_from(PARTS))
    network = Network(SCHEMA, (Up(), up), (Down(), down), learned_absent=["h"]).double()
    nn.init.normal_(network.absent["h"])
    return network


def assert_as_reference(network: Network, dag: TypedDAG, x: dict[str, Tensor], policy: str) -> None:
    """Checks cells against the reference, compiled (where possible) and eager."""
    network.run = "reference"
    want = states_and_gradients(network, dag, x, policy)
    network.run = "auto"
    for run in ("compiled", "eager"):
        network.run = run
        with suppress(EngineError if run == "compiled" else ()):
            actual = states_and_gradients(network, dag, x, policy)
            torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)


@random_programs(3, 40, st.data())
def test_random_cells_up_and_down(data):
    network = data.draw(networks())
    for _ in range(3):
        dag = data.draw(dags(SCHEMA, max_nodes=9, absent=True))
        assert_as_reference(network, dag, features(dag), data.draw(st.sampled_from(POLICIES)))
    assert_as_reference(network, empty(SCHEMA), features(empty(SCHEMA)), "depth")
    assert_as_reference(network, with_empty_graph(dag), features(dag), "depth")


@random_programs(
    5,
    40,
    size=st.integers(1, 40),
    k=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    dag=dags(SCHEMA, max_graphs=6, max_nodes=12, absent=True),
    policy=st.sampled_from(POLICIES),
)
def test_cells_of_any_width(size, k, dtype, dag, policy):
    class Leaf(Cell):
        arity = 0

        def __init__(self) -> None:
            super().__init__()
            self.fields = {"h": size, "c": k}
            self.linear = nn.Linear(SIZE, size + k)

        def forward(self, x, children):
            h, c = self.linear(x).split([size, k], 1)
            return {"h": h, "c": torch.tanh(c)}

    class Inner(Cell):
        def __init__(self, arity: int | None) -> None:
            super().__init__()
            self.arity, self.fields = arity, {"h": size, "c": k}
            self.h, self.c = nn.Linear(size, size), nn.Linear(size + k, k)

        def forward(self, x, children):
            h = torch.tanh(self.h(children.sum("h"))) + children.max("h")
            return {"h": h, "c": self.c(torch.cat([h, children.mean("c")], 1))}

    torch.manual_seed(size + k)
    cells = {"word": Leaf(), "phrase": Inner(None), "pair": Inner(2)}
    network = Network(SCHEMA, (Up(), cells)).to(dtype)
    x = {name: value.to(dtype) for name, value in features(dag).items()}
    if dtype is torch.float32:
        assert_same_both_ways(network, dag, x, policy, rtol=2e-4)
    else:
        assert_same_both_ways(network, dag, x, policy, "reference")


def test_graphs_of_one_node_and_types_without_nodes():
    network = make_network(run="compiled")
    builder = GraphBuilder(network.schema)
    for _ in range(3):
        builder.output(builder.node("word"))
        builder.finish()
    dag = builder.build()
    actual = states_and_gradients(network, dag, make_x(dag))
    for name, value in actual.items():
        if "phrase" in name or "pair" in name:
            assert not value.any()
    network.run = "reference"
    torch.testing.assert_close(actual, states_and_gradients(network, dag, make_x(dag)))


def test_one_child_of_thousands_of_parents():
    network = make_network(run="compiled")
    builder = GraphBuilder(network.schema)
    word = builder.node("word")
    for kind in ["pair", "phrase"] * 1500:
        node = builder.node(kind)
        builder.inputs(node, [word, word], weight=[0.5, 0.25])
    builder.output(node)
    builder.finish()
    dag = builder.build()
    actual = states_and_gradients(network, dag, make_x(dag))
    network.run = "eager"
    want = states_and_gradients(network, dag, make_x(dag))
    torch.testing.assert_close(actual, want, rtol=1e-9, atol=1e-9)


def test_gradients_come_as_none_expanded_and_sparse():
    dag = chain_of_phrases(30)
    network, x = make_network(), make_x(dag)
    batch = Batch(dag, build_schedule(dag, network.passes))
    tensors = [*network.parameters(), x["word"], x["phrase"]]
    nodes = torch.tensor([3, 3, 30, 0])
    actual = []
    for run in ("reference", "compiled", "eager"):
        network.run = run
        states = network(batch, x)
        losses = [
            states["h"].sum(),  # expanded, and none for c
            states.at("c", nodes).square().sum(),  # a few rows, one of them twice
            states.at("c", nodes[1:]).square().sum(),  # each once, and in no order
            states.at("c", nodes).sum() + states.at("h", nodes[:1]).sum() + states["c"].sum(),
        ]
        actual.append(
            [
                torch.autograd.grad(loss, tensors, retain_graph=True, materialize_grads=True)
                for loss in losses
            ]
        )
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(actual[2], actual[0], rtol=1e-10, atol=1e-10)
