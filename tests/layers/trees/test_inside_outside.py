"""Inside and outside passes: a node reads its siblings and the tree above, not itself."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphfold.batching import Batch, Down, Network, Up, build_schedule
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import InsideCell, LabelCell, OutsideCell

D = 3
EDGES = (Column("deprel", "int64", size=4), Column("position", "uint8", size=8))
SCHEMA = Schema(types=(NodeType("word"),), inputs=EdgeType("inputs", EDGES))
PASSES = [Down(), Up(), Down()]


def tree(heads: list[int]) -> TypedDAG:
    """The tree in which node i hangs on heads[i], the first one on none."""
    graph = GraphBuilder(SCHEMA)
    graph.nodes("word", len(heads))
    for head in range(len(heads)):
        inputs = [node for node, above in enumerate(heads) if above == head and node]
        labels = [node % 4 for node in inputs]
        graph.inputs(head, inputs, deprel=labels, position=[node % 8 for node in inputs])
    graph.output(*range(len(heads)))
    graph.finish()
    return graph.build()


def random_trees() -> st.SearchStrategy[list[int]]:
    above = [st.integers(0, node - 1) for node in range(1, 9)]
    return st.integers(1, 9).flatmap(
        lambda size: st.tuples(*above[: size - 1]).map(lambda heads: [0, *heads])
    )


def make_network(run: str = "compiled") -> Network:
    torch.manual_seed(0)
    cells = [LabelCell(D, EDGES), InsideCell(D, D), OutsideCell(D, D)]
    return Network(
        SCHEMA, *zip(PASSES, [{"word": cell} for cell in cells], strict=True), run=run
    ).double()


NETWORK = make_network()


def states_of(dag: TypedDAG, x: Tensor) -> dict[str, Tensor]:
    states = NETWORK(Batch(dag, build_schedule(dag, PASSES)), {"word": x})
    return {name: states[name] for name in ("h", "label", "message", "context", "around")}


def features(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, D, dtype=torch.float64, generator=generator)


def test_no_gradient_flows_from_a_word_to_its_own_features() -> None:
    heads = [0, 0, 0, 1, 1, 2, 5, 5]
    x = features(len(heads)).requires_grad_()
    h = states_of(tree(heads), x)["h"]
    for node in range(len(heads)):
        (grad,) = torch.autograd.grad(h[node].sum(), x, retain_graph=True)
        size = grad.abs().amax(1)
        assert size[node] <= 1e-12
        assert (size > 1e-9).sum() == len(heads) - 1


@settings(max_examples=5)
@given(random_trees())
def test_states_are_those_of_sums_over_siblings(heads: list[int]) -> None:
    dag, x = tree(heads), features(len(heads))
    label, inside, outside = (next(iter(by_type.values()))[0] for by_type in NETWORK.cells)
    got = states_of(dag, x)
    below = [[n for n, above in enumerate(heads) if above == v and n] for v in range(len(heads))]
    labels, messages, arounds = {}, {}, {}
    zero = torch.zeros(D, dtype=torch.float64)
    for node in range(len(heads)):
        kinds = {"deprel": torch.tensor([node % 4]), "position": torch.tensor([node % 8])}
        labels[node] = label.encoder(kinds)[0] if node else zero
    memory, hidden = {}, {}
    for node in reversed(range(len(heads))):  # a child has a higher number than its head
        context = sum((messages[k] for k in below[node]), zero)
        forget_x, gates_x = inside.from_x(x[node]).split([D, 3 * D])
        i, o, u = (inside.from_sum(context) + gates_x).chunk(3)
        kept = [torch.sigmoid(inside.from_h(hidden[k]) + forget_x) * memory[k] for k in below[node]]
        memory[node] = torch.sigmoid(i) * torch.tanh(u) + sum(kept, zero)
        hidden[node] = torch.sigmoid(o) * torch.tanh(memory[node])
        told = torch.cat([hidden[node], labels[node]])
        messages[node] = torch.tanh(inside.to_message(told))
        torch.testing.assert_close(got["context"][node], context)
        torch.testing.assert_close(got["message"][node], messages[node])
    for node in range(len(heads)):
        siblings = [k for k in below[heads[node]] if k != node] if node else []
        others = sum((messages[k] for k in siblings), zero)
        above = arounds[heads[node]] if node else zero
        o = torch.tanh(outside.outside(torch.cat([above, others, labels[node]])))
        arounds[node] = torch.tanh(outside.to_around(o) + outside.from_x(x[node]))
        h = torch.tanh(outside.to_h(torch.cat([o, got["context"][node]])))
        torch.testing.assert_close(got["h"][node], h)
