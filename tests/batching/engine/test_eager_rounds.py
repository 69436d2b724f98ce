"""Eager rounds of message passing against the reference, over many types and fields."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import MIXED_SCHEMA, dags
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Rounds, Up, build_schedule
from graphfold.batching.kernels import segment
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import ConfigError

SIZE = 3
TYPES = ("word", "phrase", "pair")
#: With "auto", cells that are refused run eager with native products.
WAYS = ("eager", "auto")
refused = pytest.mark.filterwarnings("ignore:(Message|Plain) is not compiled")


class Below(Cell):
    """Gives each node the fields that rounds read, `fixed` among them, which they do not write."""

    def __init__(self, arity: int | None) -> None:
        super().__init__()
        self.fields, self.arity, self.reads = {"h": SIZE, "fixed": SIZE}, arity, ()

    def forward(self, x, children):
        return {"h": x, "fixed": torch.cos(x)}


class Message(Cell):
    """Reads in all ways that rounds have."""

    reads = ("h", "fixed")

    def __init__(self, kinds: bool = True, in_place: bool = False) -> None:
        super().__init__()
        self.fields = {"h": SIZE, "new": SIZE}
        self.linear, self.kind = nn.Linear(SIZE, SIZE), nn.Embedding(4, 1)
        self.kinds, self.in_place = kinds, in_place

    def before_edges(self, edge):
        return {"length": torch.tanh(self.kind(edge["kind"])) + edge["length"].view(-1, 1)}

    def initial(self, x):
        return {"h": x, "new": torch.sin(x)}

    def forward(self, x, children):
        weight = children.edge["length"].view(-1).double() / (1 + children.child_count)
        total = children.sum("h", weight, own=0.5) + children.mean("fixed") - children.sum("h")
        h = torch.tanh(self.linear(total) + x + children.sum(torch.sin(children.rows("h"))))
        new = children.previous("new") + children.sum("new") + children.max("fixed")
        if self.in_place:
            for changed in (children.rows("h"), children.previous("h"), children.rows("fixed")):
                changed.zero_()
        return {"h": h, "new": new}


class Plain(Message):
    """Reads the columns of edges without an encoder."""

    before_edges = Cell.before_edges


def mixed_dag() -> TypedDAG:
    """Two nodes of each type, and relations among all of them."""
    builder = GraphBuilder(MIXED_SCHEMA)
    builder.nodes("word", 2, form=[0, 1])
    phrases = builder.nodes("phrase", 2)
    pairs = builder.nodes("pair", 2, weight=[0.5, 1.0], flag=[True, False])
    for node, children in zip((*phrases, *pairs), ([0], [0, 1], [0, 1], [2, 3]), strict=True):
        builder.inputs(node, children, label=[0] * len(children))
    ends = [(0, 2), (2, 4), (4, 0), (1, 5), (5, 3), (3, 3), (0, 1), (2, 1)]
    source, target = zip(*ends, strict=True)
    length = [0.5 * number for number in range(len(ends))]
    builder.edges("next", source, target, kind=[n % 4 for n in range(len(ends))], length=length)
    builder.output(pairs[-1])
    builder.finish(text="", score=0.0, answer=0)
    return builder.build()


def network_of(kind: type[Message], with_cell: list[str], num_rounds: int, **options) -> Network:
    below = {name: Below(arity) for name, arity in zip(TYPES, (0, None, 2), strict=True)}
    cells = {name: [kind(**options) for _ in range(num_rounds)] for name in with_cell}
    passes = [Up(), Rounds("next", num_rounds)]
    return Network(MIXED_SCHEMA, *zip(passes, [below, cells], strict=True)).double()


def results(network: Network, dag: TypedDAG, way: str) -> list[Tensor]:
    network.run = way
    generator = torch.Generator().manual_seed(0)
    counts = zip(TYPES, dag.num_nodes_by_type, strict=True)
    made = {
        name: torch.randn(n, SIZE, dtype=torch.float64, generator=generator) for name, n in counts
    }
    x = {name: value.requires_grad_() for name, value in made.items()}
    states = network(Batch(dag, build_schedule(dag, network.passes)), x)
    values = [states[name] for name in sorted(states)]
    if not torch.is_grad_enabled():
        return values
    loss = sum((v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in values)
    tensors = [*network.parameters(), *x.values()]
    return [*values, *torch.autograd.grad(loss, tensors, materialize_grads=True)]


@refused
@pytest.mark.parametrize("small", [0, 1 << 40], ids=["where rows lie", "gathered"])
@pytest.mark.parametrize("kind", [Message, Plain])
@settings(max_examples=8)
@given(data=st.data())
def test_types_with_and_without_cells_equal_the_reference(small, kind, data):
    dag = data.draw(dags(MIXED_SCHEMA, max_nodes=9))
    with_cell = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, unique=True))
    network = network_of(kind, with_cell, data.draw(st.integers(1, 3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "SMALL", small)
        want = results(network, dag, "reference")
        for way in WAYS:
            torch.testing.assert_close(results(network, dag, way), want, rtol=1e-9, atol=1e-9)


@refused
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("grad", [True, False])
def test_a_change_in_place_changes_nobodys_state(way, grad):
    dag = mixed_dag()
    actual = []
    for in_place in (False, True):
        torch.manual_seed(0)
        network = network_of(Message, list(TYPES), 2, in_place=in_place)
        with torch.set_grad_enabled(grad):
            actual.append(results(network, dag, way))
    torch.testing.assert_close(actual[1], actual[0], rtol=0, atol=0)


def test_a_schedule_of_other_rounds_is_refused():
    dag, network = mixed_dag(), network_of(Message, list(TYPES), 2)
    schedule = build_schedule(dag, [Up(), Rounds("next", 3)])
    x = {name: torch.zeros(2, SIZE, dtype=torch.float64) for name in TYPES}
    with pytest.raises(
        ConfigError, match=r"for the passes .*rounds=3.*model has .*rounds=2.*Build it"
    ):
        network(Batch(dag, schedule), x)
