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
    OWN,
    READS,
    SCHEMA,
    SIZE,
    STACKS,
    SUMS,
    UNUSUAL_DOWN,
    UNUSUAL_OWN,
    UNUSUAL_READS,
    Part,
    RandomCell,
    full,
    random_cells,
)
from strategies import chain, dags, empty, star, with_empty_graph
from thinned import random_programs
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Down, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import EngineError

pytestmark = pytest.mark.usefixtures("backend")

POLICIES = ("depth", "critical_path", "agenda", "one_by_one")
#: What cells are compiled with; the others index by codes.
PARTS = tuple(name for name in OWN if name not in ("embedding", "index"))
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
    network = Network(SCHEMA, [Up(), Down()], [up, down], learned_absent=["h"]).double()
    nn.init.normal_(network.absent["h"])
    return network


def features(dag: TypedDAG) -> dict[str, Tensor]:
    return {
        t.name: torch.randn(count, SIZE, dtype=torch.float64)
        for t, count in zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
    }


def assert_as_reference(network: Network, dag: TypedDAG, x: dict[str, Tensor], policy: str) -> None:
    """Checks cells against the reference, compiled (where possible) and eager."""
    network.engine = "reference"
    want = states_and_gradients(network, dag, x, policy)
    network.engine = "fast"
    for fuse in (True, False):
        network.fuse = fuse
        with suppress(EngineError if fuse else ()):
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


def parts_of(network: Network) -> list[Part]:
    return [module for module in network.modules() if isinstance(module, Part)]


def assert_unusual_reads(network: Network, dag: TypedDAG) -> None:
    """Every engine gives the reference's numbers, also after the buffers have changed."""
    x = features(dag)
    for _ in range(2):
        network.engine, network.fuse = "reference", None
        want = states_and_gradients(network, dag, x)
        for engine, fuse in (("fast", None), ("fast", False), ("autograd", None)):
            network.engine, network.fuse = engine, fuse
            actual = states_and_gradients(network, dag, x)
            torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
        for part in parts_of(network):
            part.factors.mul_(-1.5)


@st.composite
def unusual_networks(draw: st.DrawFn) -> Network:
    """Up and down, with cells that read in unusual ways as well."""
    up = {
        "word": draw(random_cells(0, (*PARTS, *UNUSUAL_OWN))),
        "phrase": draw(random_cells(None, (*PARTS, *UNUSUAL_OWN, *UNUSUAL_READS))),
        "pair": draw(random_cells(2, (*UNUSUAL_OWN, *UNUSUAL_READS))),
    }
    down_parts = (*PARTS, *UNUSUAL_OWN, *UNUSUAL_DOWN)
    down = {name: draw(random_cells(None, down_parts)) for name in ("word", "phrase")}
    for cell in (*up.values(), *down.values()):
        cell.parts[0].kind = draw(st.sampled_from((*PARTS, *UNUSUAL_OWN)))
    return Network(SCHEMA, [Up(), Down()], [up, down]).double()


@pytest.mark.filterwarnings("ignore:.* is not compiled")
@random_programs(4, 40, st.data())
def test_cells_that_read_in_unusual_ways_are_right_or_refused(data):
    assert_unusual_reads(data.draw(unusual_networks()), data.draw(dags(SCHEMA, max_nodes=9)))


#: The ways that a program can follow; all others are refused, caches until they are filled.
COMPILED = {*UNUSUAL_DOWN, "heads", "cached", "cached_by_function"}


@pytest.mark.on_cpu
@pytest.mark.filterwarnings("ignore:.* is not compiled")
@pytest.mark.parametrize("kind", [*UNUSUAL_OWN, *UNUSUAL_DOWN])
def test_an_unusual_read(kind):
    torch.manual_seed(0)

    def cell(kind: str, arity: int | None) -> RandomCell:
        return RandomCell(["linear", kind], False, nn.Tanh(), nn.Identity(), arity)

    up = {"word": cell("plain", 0), "phrase": cell("sum", None), "pair": cell("sum", 2)}
    down = {name: cell(kind, None) for name in ("word", "phrase")}
    network = Network(SCHEMA, [Up(), Down()], [up, down]).double()
    assert_unusual_reads(network, full())
    network.engine, network.fuse = "fast", None
    states_and_gradients(network, full(), features(full()))
    is_compiled = network.execution["word"].startswith("compiled (")
    assert is_compiled == (kind in COMPILED), network.execution


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
    network = Network(SCHEMA, [Up()], [cells]).to(dtype)
    x = {name: value.to(dtype) for name, value in features(dag).items()}
    if dtype is torch.float32:
        assert_same_both_ways(network, dag, x, policy, rtol=2e-4)
    else:
        assert_same_both_ways(network, dag, x, policy, "reference")


class Mean(Cell):
    """Few operations, so that they can be many nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "c": 2}
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x, children):
        h = torch.tanh(self.linear(children.mean("h")) + x)
        return {"h": h, "c": children.max("c") + h[:, :2]}


class Leaf(Mean):
    arity = 0

    def forward(self, x, children):
        return {"h": self.linear(x), "c": x[:, 1:]}


@pytest.mark.parametrize("shape", ["chain", "star"])
def test_long_chains_and_wide_stars(shape):
    """Chains of 10,000 are in the contracts of cells; the other engine takes seconds for them."""
    dag = chain(SCHEMA, "word", "phrase", 2_000)
    if shape == "star":
        dag = star(SCHEMA, "word", "phrase", 20_000)
    torch.manual_seed(0)
    network = Network(SCHEMA, [Up()], [{"word": Leaf(), "phrase": Mean()}]).double()
    x = features(dag)
    actual = states_and_gradients(network, dag, x)
    assert network.execution["phrase"].startswith("compiled (")
    network.engine = "autograd"
    torch.testing.assert_close(actual, states_and_gradients(network, dag, x), rtol=1e-8, atol=1e-8)


def test_graphs_of_one_node_and_types_without_nodes():
    network = make_network(fuse=True)
    builder = GraphBuilder(network.schema)
    for _ in range(3):
        builder.output(builder.node("word"))
        builder.finish()
    dag = builder.build()
    actual = states_and_gradients(network, dag, make_x(dag))
    for name, value in actual.items():
        if "phrase" in name or "pair" in name:
            assert not value.any()
    network.engine = "reference"
    torch.testing.assert_close(actual, states_and_gradients(network, dag, make_x(dag)))


def test_one_child_of_thousands_of_parents():
    network = make_network(fuse=True)
    builder = GraphBuilder(network.schema)
    word = builder.node("word")
    for kind in ["pair", "phrase"] * 1500:
        node = builder.node(kind)
        builder.inputs(node, [word, word], weight=[0.5, 0.25])
    builder.output(node)
    builder.finish()
    dag = builder.build()
    actual = states_and_gradients(network, dag, make_x(dag))
    network.engine = "autograd"
    want = states_and_gradients(network, dag, make_x(dag))
    torch.testing.assert_close(actual, want, rtol=1e-9, atol=1e-9)


def test_gradients_come_as_none_expanded_and_sparse():
    dag = chain_of_phrases(30)
    network, x = make_network(), make_x(dag)
    batch = Batch(dag, build_schedule(dag, network.passes))
    tensors = [*network.parameters(), x["word"], x["phrase"]]
    nodes = torch.tensor([3, 3, 30, 0])
    actual = []
    for engine, fuse in (("reference", None), ("fast", True), ("fast", False)):
        network.engine, network.fuse = engine, fuse
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
