"""Rounds that compute equal surroundings once: the same results, from fewer rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import dags, empty, with_empty_graph
from torch import Tensor, nn

from graphfold.batching import Batch, Cell, Network, Pass, Rounds, Up, build_schedule
from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType, Schema, TypedDAG, collate
from graphfold.layers import (
    DMPNNAtomCell,
    DMPNNBondCell,
    FeatureEncoder,
    FingerprintCell,
    GCNCell,
    GINCell,
    GINECell,
    LeafCell,
    TreeRNNCell,
)

pytestmark = pytest.mark.usefixtures("backend")

SIZE = 3
KIND = (Column("kind", "int64", size=2),)
ATOMS = Schema(
    types=(NodeType("atom", 0, KIND),),
    relations=(EdgeType("bond", KIND),),
    graph_targets=(Column("y"),),
)
#: Atoms, and groups of atoms that are nodes themselves.
GROUPS = Schema(
    types=(NodeType("atom", 0, KIND), NodeType("ring", 2, KIND)),
    relations=(EdgeType("bond", KIND), EdgeType("next")),
)

Cells = Sequence[dict[str, Cell | list[Cell]]]


def make(schema: Schema, passes: Sequence[Pass], cells: Cells) -> nn.ModuleDict:
    """An encoder and a network in float64."""
    parts = {
        "encoder": FeatureEncoder(schema, SIZE),
        "network": Network(schema, *zip(passes, cells, strict=True)),
    }
    return nn.ModuleDict(parts).double()


def run(model: nn.ModuleDict, dag: TypedDAG, share: bool, way: str = "auto") -> dict[str, Tensor]:
    """All fields, and the gradients of all parameters."""
    network = model["network"]
    network.run = way
    schedule = build_schedule(dag, network.passes, share=share)
    states = network(Batch(dag, schedule), model["encoder"](dag, schedule.sources))
    outcome = {name: states[name] for name in sorted(states)}
    weights = (torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view_as(t) for t in outcome.values())
    loss = torch.stack(
        [(t * w).sum() for t, w in zip(outcome.values(), weights, strict=True)]
    ).sum()
    parameters = dict(model.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    return {**outcome, **dict(zip(parameters, grads, strict=True))}


def check(model: nn.ModuleDict, dag: TypedDAG) -> None:
    want = run(model, dag, share=False, way="reference")
    for way in ("auto", "eager", "reference"):
        got = run(model, dag, share=True, way=way)
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    only_rounds = all(isinstance(item, Rounds) for item in model["network"].passes)
    for share in (False, True):
        got = run(model, dag, share, "compiled" if only_rounds else "auto")
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def rows(dag: TypedDAG, num_rounds: int) -> list[int]:
    """How many rows are computed before the first round and in each."""
    schedule = build_schedule(dag, [Rounds("bond", num_rounds)], share=True)
    unrolled, sizes = schedule.unrolled[0], [0] * (schedule.unrolled[0].num_rounds + 1)
    for group in unrolled.plan.groups:
        sizes[unrolled.round_of(group.op_type)[0]] += group.size
    assert sizes[-1] == schedule.passes[0].num_rows
    return sizes


CONVOLUTIONS = {
    "gcn": lambda: GCNCell(SIZE, "tanh", residual=True),
    "gin": lambda: GINCell(SIZE, "tanh"),
    "gine": lambda: GINECell(SIZE, KIND, "tanh"),
    "fingerprint": lambda: FingerprintCell(SIZE, 4, KIND, max_degree=2),
    "dmpnn": lambda: DMPNNBondCell(SIZE, "tanh"),
}


@pytest.mark.parametrize(
    ("name", "symmetric"), [*((name, True) for name in CONVOLUTIONS), ("gine", False)]
)
@settings(max_examples=4)
@given(data=st.data())
def test_convolutions_give_the_same(name, symmetric, data):
    check(convolution(name), data.draw(dags(ATOMS, max_graphs=4, symmetric=symmetric)))


@functools.cache
def convolution(name: str) -> nn.ModuleDict:
    cells = [CONVOLUTIONS[name]() for _ in range(3)]
    return make(ATOMS, [Rounds("bond", 3)], [{"atom": cells}])


@settings(max_examples=4)
@given(dag=dags(ATOMS, max_graphs=4, symmetric=True))
def test_several_passes_of_rounds_give_the_same(dag):
    check(several_passes(), dag)


@functools.cache
def several_passes() -> nn.ModuleDict:
    passes = [Rounds("bond", 2), Rounds("bond", 1)]
    cells: Cells = [{"atom": DMPNNBondCell(SIZE)}, {"atom": DMPNNAtomCell(SIZE)}]
    return make(ATOMS, passes, cells)


@pytest.mark.filterwarnings("ignore:GINCell is not compiled")
@pytest.mark.parametrize("is_up_again", [False, True])
@settings(max_examples=4)
@given(dag=dags(GROUPS, max_graphs=4))
def test_rounds_between_passes_up_give_the_same(is_up_again, dag):
    check(between_passes_up(is_up_again), dag)


@functools.cache
def between_passes_up(is_up_again: bool) -> nn.ModuleDict:
    both = GCNCell(SIZE, "tanh")
    tree: dict[str, Cell | list[Cell]] = {
        "atom": LeafCell(SIZE, SIZE),
        "ring": TreeRNNCell(SIZE, SIZE),
    }
    passes = [Up(), Rounds("bond", 2), Rounds("next", 1), *([Up()] if is_up_again else [])]
    cells: Cells = [tree, {"atom": both, "ring": both}, {"ring": GINCell(SIZE)}, tree]
    return make(GROUPS, passes, cells[: len(passes)])


def test_a_ring_is_one_atom_and_two_rings_are_the_same_one():
    builder = GraphBuilder(ATOMS)
    for size in (5, 6):
        ring(builder, size)
    assert rows(builder.build(), 3) == [1, 1, 1, 1]


def ring(builder: GraphBuilder, size: int) -> None:
    nodes = list(builder.nodes("atom", size, kind=[0] * size))
    turned = [*nodes[1:], nodes[0]]
    builder.edges("bond", nodes + turned, turned + nodes, kind=[0] * (2 * size))
    builder.output(nodes[0])
    builder.finish()


def chain(size: int) -> TypedDAG:
    builder = GraphBuilder(ATOMS)
    nodes = list(builder.nodes("atom", size, kind=[0] * size))
    there, back = nodes[1:], nodes[:-1]
    builder.edges("bond", there + back, back + there, kind=[0] * (2 * size - 2))
    builder.output(nodes[0])
    builder.finish()
    return builder.build()


def test_a_round_tells_one_more_step_of_the_surroundings_apart():
    # After one round: ends, atoms beside an end on their left, on their right, and all others. From
    # then on the ends are two, and with every round one more atom on each side is on its own.
    assert rows(chain(20), 4) == [1, 4, 7, 9, 11]


def test_how_many_neighbours_a_neighbour_has_tells_atoms_apart():
    # The ends of a chain of three read an atom with two neighbours, those of a pair one with one.
    dag = collate([chain(2), chain(3)])
    assert rows(dag, 1) == [1, 3]
    check(make(ATOMS, [Rounds("bond", 1)], [{"atom": GCNCell(SIZE)}]), dag)


@pytest.mark.parametrize("column", ["atoms", "bonds"])
def test_columns_tell_atoms_apart(column):
    builder = GraphBuilder(ATOMS)
    for kind in (0, 1):
        of_atom, of_bond = (kind, 0) if column == "atoms" else (0, kind)
        builder.output(*builder.nodes("atom", 2, kind=[of_atom] * 2))
        builder.edges("bond", [0, 1], [1, 0], kind=[of_bond] * 2)
        builder.finish()
    before = 2 if column == "atoms" else 1
    assert rows(builder.build(), 2) == [before, 2, 2]


def test_inputs_are_those_of_atoms_that_differ_by_themselves():
    dag = collate([chain(3), chain(4)])
    schedule = build_schedule(dag, [Rounds("bond", 1)], share=True)
    (sources,) = schedule.sources
    assert (sources.node.tolist(), sources.of.tolist()) == ([0], [0] * 7)
    assert FeatureEncoder(ATOMS, SIZE)(dag, schedule.sources)["atom"].shape == (1, SIZE)


def test_moving_a_schedule_moves_what_is_equal():
    schedule = build_schedule(chain(6), [Rounds("bond", 1)], share=True)
    moved = schedule.map_tensors(lambda tensor: tensor + 0)
    assert torch.equal(moved.class_of, schedule.class_of)
    assert moved.class_of is not schedule.class_of
    old, new = schedule.unrolled[0], moved.unrolled[0]
    pairs = zip((*old.order, old.kept), (*new.order, new.kept), strict=True)
    rows = [(one.rows, other.rows) for (one,), (other,) in pairs if one is not None]
    assert len(rows) == 3
    assert all(one.equal(other) and one is not other for one, other in rows)
    assert moved.sources[0].of is not schedule.sources[0].of


def test_elsewhere_a_schedule_comes_unrolled():
    schedule = build_schedule(chain(6), [Rounds("bond", 2), Up()]).to("meta")
    rounds, none = schedule.unrolled
    assert none is None
    assert {rounds.plan.child_row.device.type, rounds.plan.previous_row.device.type} == {"meta"}


def test_an_empty_graph_in_last_place():
    dag = with_empty_graph(chain(3))
    check(make(ATOMS, [Rounds("bond", 2)], [{"atom": GINECell(SIZE, KIND)}]), dag)


def test_no_graph_at_all():
    model = make(ATOMS, [Rounds("bond", 2)], [{"atom": GINECell(SIZE, KIND)}])
    dag, network = empty(ATOMS), model["network"]
    schedule = build_schedule(dag, network.passes, share=True)
    states = network(Batch(dag, schedule), model["encoder"](dag, schedule.sources))
    assert states["h"].shape == (0, SIZE)
