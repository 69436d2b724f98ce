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
    for start, part in want.items():
        assert (actual[start].device.type, actual[start].shape) == ("meta", part.shape)


@pytest.mark.parametrize("kind", _READERS)
@pytest.mark.parametrize("of_groups", [False, True])
def test_readers_of_rows_are_those_of_each_of_them(plan, kind, of_groups):
    here, _ = plan
    ptr, reader = _READERS[kind](here, 1)
    some = None if of_groups else range(1, here.num_rows)
    ranges = [range(g.start, g.stop) for g in here.groups] if some is None else [some]
    found, moved = (GroupIndices().readers(own, kind, 1, some) for own in plan)
    assert list(moved) == list(found)
    assert set(found) == {rows.start for rows in ranges if ptr[rows.start] < ptr[rows.stop]}
    for rows in ranges:
        wanted = [reader[ptr[row] : ptr[row + 1]] for row in rows]
        if rows.start not in found:
            continue
        index, pointers, among, most = found[rows.start]
        assert torch.equal(index, reader[among])
        assert most == max(map(len, wanted))
        for own, begin, end in zip(wanted, pointers[:-1], pointers[1:], strict=True):
            assert torch.equal(index[begin:end], own)
        there = moved[rows.start]
        assert (there.reader.shape, there.ptr.shape) == (index.shape, pointers.shape)
        assert (there.reader.device.type, there.ptr.device.type) == ("meta", "meta")
        assert (there.among, there.most) == (among, most)
