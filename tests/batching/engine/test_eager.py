"""The eager engine: what the reference computes, in time and memory that grow with the graph."""

from __future__ import annotations

import pytest
import torch
from engine_cells import SCHEMA as TREES
from engine_cells import PairCell, PhraseCell, WordCell, make_batch, make_x, random_dag, tree_cells
from hypothesis import given
from hypothesis import strategies as st
from random_cells import OWN, READS, SCHEMA, SIZE, STACKS, SUMS, random_cells
from strategies import dags
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from graphfold.batching import Batch, Down, Network, Up, build_schedule
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.errors import EngineError

POLICIES = ("depth", "critical_path", "agenda", "one_by_one")


def results(network: Network, batch: Batch, x: dict[str, Tensor], way: str) -> list[Tensor]:
    """All states, and the gradients of a sum in which every element counts differently."""
    network.run = way
    states = network(batch, x)
    values = [states[name] for name in sorted(states)]
    loss = torch.stack([(v * torch.linspace(-1, 2, v.numel()).view_as(v)).sum() for v in values])
    tensors = [*network.parameters(), *x.values()]
    grads = torch.autograd.grad(loss.sum(), tensors, allow_unused=True)
    pairs = zip(grads, tensors, strict=True)
    return [*values, *(torch.zeros_like(t) if g is None else g for g, t in pairs)]


def assert_as_reference(
    network: Network, batch: Batch, x: dict[str, Tensor], way: str = "eager"
) -> None:
    want, got = (results(network, batch, x, name) for name in ("reference", way))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


# --- What it computes


@given(st.data())
def test_random_cells_up_and_down_equal_the_reference(data):
    dag = data.draw(dags(SCHEMA, max_nodes=9, absent=True))
    arity = {"word": (0, ()), "phrase": (None, (*SUMS, *READS)), "pair": (2, (*SUMS, *STACKS))}
    up = {name: data.draw(random_cells(n, (*OWN, *parts))) for name, (n, parts) in arity.items()}
    down_parts = (*OWN, *SUMS, *READS, "previous")
    down = {name: data.draw(random_cells(None, down_parts)) for name in ("word", "phrase")}
    network = Network(SCHEMA, (Up(), up), (Down(), down), learned_absent=["h"]).double()
    nn.init.normal_(network.absent["h"])
    x = make_x(dag)
    policy = data.draw(st.sampled_from(POLICIES))
    assert_as_reference(network, Batch(dag, build_schedule(dag, network.passes, policy)), x)


class Reader(PhraseCell):
    """Writes one field; reads two of an earlier pass, of its node and of the node's parents."""

    reads = ("h", "c")

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"down": SIZE}

    def forward(self, x, children):
        weight = children.child_count.double()
        return {"down": children.previous("h") + children.sum("c", weight) + children.max("h")}


# --- What it costs


def caterpillar(length: int) -> TypedDAG:
    """A chain in which each phrase also reads a word of its own, the first word, and no other."""
    builder = GraphBuilder(TREES)
    words = builder.nodes("word", length)
    node = words[0]
    for word in words[1:]:
        below, node = node, builder.node("phrase")
        builder.inputs(node, [below, word, 0], weight=[1.0, 0.5, 0.25])
    builder.output(node)
    builder.finish()
    return builder.build()


class Written(TorchDispatchMode):
    """Counts the bytes of all that is computed inside."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = func(*args, **(kwargs or {}))
        for value in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
            if isinstance(value, Tensor):
                self.bytes += value.numel() * value.element_size()
        return outputs


def cost(dag: TypedDAG) -> tuple[int, int]:
    """How many bytes are kept for backward, and how many are computed forward and backward."""
    down = dict.fromkeys(("word", "phrase"), PhraseCell())
    reader = dict.fromkeys(("word", "phrase"), Reader())
    cells = [tree_cells(), down, reader]
    network = Network(TREES, *zip([Up(), Down(), Down()], cells, strict=True), run="eager").double()
    batch, x, saved = make_batch(dag, network), make_x(dag), []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with Written() as written, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        states = network(batch, x)
        sum(states[name].sum() for name in states).backward()
    return sum(saved), written.bytes


def test_cost_grows_with_the_length_of_a_chain_not_with_its_square():
    for short, long in zip(cost(caterpillar(60)), cost(caterpillar(120)), strict=True):
        assert long < 2.3 * short


@given(dags(TREES, absent=True, max_nodes=9), st.sampled_from(POLICIES))
def test_routes_list_every_edge_once_by_source_and_by_reader(dag, policy):
    (plan,) = build_schedule(dag, [Up()], policy).passes
    routes = plan.routes
    pieces: dict[int, list[Tensor]] = {}
    for source in sorted(routes.counts):
        counts, index = routes.counts[source], routes.index[source]
        assert torch.equal(routes.by_row[source], torch.argsort(index, stable=True))
        parts = (routes.index[source] + source).split_with_sizes(list(counts.values()))
        for reader, part in zip(counts, parts, strict=True):
            assert source in routes.sources[reader]
            pieces.setdefault(reader, []).append(part)
    for group in plan.groups:
        read = torch.cat(pieces.get(group.start, [torch.zeros(0, dtype=torch.int64)]))
        assert torch.equal(read[routes.order[group.start]], plan.group_child_row(group))


# --- Cells that change what they read


class Changing(PhraseCell):
    """Changes in place what it reads of its children."""

    def forward(self, x, children):
        state = super().forward(x, children)
        children.rows("h").zero_()
        children.rows("c").mul_(2)
        return state


class ChangingPair(PairCell):
    def forward(self, x, children):
        children.stack("h").add_(1)
        children.stack("c").zero_()
        return super().forward(x, children)


class ChangingBelow(PhraseCell):
    """Changes in place the states of an earlier pass."""

    reads = ("h", "c")

    def __init__(self) -> None:
        super().__init__()
        self.fields = {"down": SIZE}

    def forward(self, x, children):
        children.previous("h").zero_()
        children.rows("h").zero_()
        return {"down": children.previous("h") + children.sum("h")}


class Below(ChangingBelow):
    def forward(self, x, children):
        return {"down": children.previous("h") + children.sum("h")}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("graph", [caterpillar(5), random_dag(4, 0), random_dag(4, 2)])
def test_a_change_in_place_changes_nobodys_state(graph, grad):
    x = make_x(graph)
    values = []
    for pair, phrase, below in (
        (PairCell, PhraseCell, Below),
        (ChangingPair, Changing, ChangingBelow),
    ):
        torch.manual_seed(0)
        up = {"word": WordCell(), "pair": pair(), "phrase": phrase()}
        down = dict.fromkeys(("word", "pair", "phrase"), below())
        network = Network(TREES, (Up(), up), (Down(), down), run="eager").double()
        with torch.set_grad_enabled(grad):
            states = network(make_batch(graph, network), x)
        values.append([states[name] for name in sorted(states)])
    torch.testing.assert_close(values[1], values[0], rtol=0, atol=0)


# --- Statistics over a group


class Normed(PhraseCell):
    def __init__(self, **options) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(SIZE, **options)

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": self.norm(state["h"])}


class Functional(Normed):
    def forward(self, x, children):
        state = PhraseCell.forward(self, x, children)
        return {**state, "h": F.batch_norm(state["h"], None, None, training=True)}


class NormedAround(Normed):
    """Normalises where all nodes of the type are together."""

    def before(self, x):
        return super().before(self.norm(x))

    def forward(self, x, children):
        return PhraseCell.forward(self, x, children)

    def after(self, state):
        return {"normed": self.norm(state["h"])}


def run_with(cell: PhraseCell, way: str, is_training: bool, grad: bool, item) -> None:
    dag = random_dag(6, 0)
    cells = {**tree_cells(), "phrase": cell}
    passes, all_cells = [Up()], [cells]
    if isinstance(item, Down):
        passes, all_cells = [Up(), item], [tree_cells(), {"phrase": cell}]
    network = (
        Network(TREES, *zip(passes, all_cells, strict=True), run=way).double().train(is_training)
    )
    with torch.set_grad_enabled(grad):
        network(make_batch(dag, network), make_x(dag))


@pytest.mark.filterwarnings("ignore:(Normed|Functional) is not compiled")
@pytest.mark.parametrize("way", ["auto", "eager"])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("item", [Up(), Down()])
def test_normalising_over_a_group_is_refused(way, grad, item):
    without = {"track_running_stats": False}
    for is_training in (True, False):
        for cell in (Normed(**without), Normed(**without, affine=False), Functional()):
            message = rf"{type(cell).__name__} normalises over the nodes of a group.*LayerNorm"
            with pytest.raises(EngineError, match=message):
                run_with(cell, way, is_training, grad, item)
    for cell in (Normed(), Normed(momentum=None), Normed(affine=False)):
        with pytest.raises(EngineError, match=r"Normed changes its buffer 'norm\..*LayerNorm"):
            run_with(cell, way, True, grad, item)
        run_with(cell, way, False, grad, item)  # its statistics are fixed then


@pytest.mark.parametrize("way", ["auto", "eager"])
@pytest.mark.parametrize("tracks", [True, False])
def test_normalising_over_all_nodes_of_a_type_is_allowed(way, tracks):
    run_with(NormedAround(track_running_stats=tracks), way, True, True, Up())
    run_with(NormedAround(track_running_stats=tracks), way, False, True, Up())
