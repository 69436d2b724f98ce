"""GroupIndices: found on the CPU for a plan elsewhere, and readers of any rows against a loop."""

from __future__ import annotations

import pytest
import torch
from engine_cells import chain, random_dag

from graphfold.batching import Down, Rounds, Up, build_schedule
from graphfold.batching.backends.torch_indices import _INDICES, _READERS, GroupIndices
from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG


def ring(size: int) -> TypedDAG:
    builder = GraphBuilder(Schema((NodeType("atom", 0),), relations=(EdgeType("bond"),)))
    builder.nodes("atom", size)
    builder.edges("bond", range(size), [(i + 1) % size for i in range(size)])
    builder.output(0)
    builder.finish()
    return builder.build()


def plans() -> dict[str, tuple[PassSchedule, PassSchedule]]:
    """Plans on the CPU, and copies on `meta`, which have no numbers."""
    pairs = {}
    for name, dag, item in (
        ("up", random_dag(4, 3), Up()),
        ("down", chain(4), Down()),
        ("rounds", ring(5), Rounds("bond", 2)),
    ):
        schedule = build_schedule(dag, [item])
        there = schedule.to("meta")
        if name == "rounds":
            pairs[name] = schedule.unrolled[0].plan, there.unrolled[0].plan
        else:
            pairs[name] = schedule.passes[0], there.passes[0]
    return pairs


PLANS = plans()


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]


@pytest.mark.parametrize("kind", _INDICES)
def test_a_plan_elsewhere_gets_the_indices_of_the_plan_on_the_cpu(plan, kind):
    here, there = plan
    if kind == "previous_row" and here.previous_row is None:
        pytest.skip("only rounds have rows before")
    want, actual = GroupIndices().parts(here, kind), GroupIndices().parts(there, kind)
    assert list(actual) == list(want)
    for start, own in want.items():
        pairs = zip(
            *(p if isinstance(p, tuple) else (p,) for p in (own, actual[start])), strict=True
        )
        for part, moved in pairs:
            assert (moved.device.type, moved.shape) == ("meta", part.shape)


@pytest.mark.parametrize("kind", _READERS)
def test_readers_of_some_rows_are_those_of_each_of_them(plan, kind):
    here, there = plan
    ptr, reader = _READERS[kind](here, 1)
    rows = range(1, here.num_rows)
    actual, own, among = GroupIndices().readers(here, kind, 1, rows)
    assert torch.equal(actual, reader[among])
    for number, row in enumerate(rows):
        want = reader[ptr[row] : ptr[row + 1]]
        assert torch.equal(actual[own[number] : own[number + 1]], want)
    moved, pointers, same = GroupIndices().readers(there, kind, 1, rows)
    assert (moved.shape, pointers.shape, same) == (actual.shape, own.shape, among)
    assert moved.device.type == "meta"
