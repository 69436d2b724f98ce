"""Scratch memory: no value lies where another one lies that is still read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphfold.batching.backends.fusion import fuse, reads
from graphfold.batching.backends.scratch import allocate
from graphfold.batching.compiler.operations import ADD, EXP, EXPAND, GATHER, MULTIPLY, PULL, RELU
from graphfold.batching.compiler.values import CONSTANT, EDGES, NODES, WHOLE, Value, ValueBuilder

OPERATIONS = (EXP, RELU, ADD, MULTIPLY, EXPAND, GATHER)
STEPS = st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(STEPS, max_size=20), st.sets(st.integers(0, 20)))
def test_no_value_is_overwritten_that_is_still_read(steps, placed):
    to = ValueBuilder(None)
    views = [to.add(PULL, NODES, (3,), name="x"), to.add(GATHER, EDGES, (3,), name="h")]
    for operation, one, other in steps:
        x, y = views[-1 - one % len(views)], views[-1 - other % len(views)]
        if operation is MULTIPLY:
            weight = Value(CONSTANT, WHOLE, (3, 3), name="0").view
            views.append(to.add(operation, x.space, (3,), [x, weight]))
        elif operation is GATHER:
            views.append(to.add(operation, EDGES, (3,), name="h"))
        elif operation is EXPAND:
            nodes = x if x.space == NODES else views[0]
            views.append(to.add(operation, EDGES, (3,), [nodes]))
        elif operation is ADD:
            views.append(to.apply(operation, x, y if y.space == x.space else x))
        else:
            views.append(to.apply(operation, x))
    elsewhere = {value for at, value in enumerate(to.values) if at in placed}
    fused = fuse(to.values, elsewhere)
    scratch = allocate(to.values, elsewhere, fused)

    computed = [value for value in to.values if value not in fused]
    last = {read: at for at, value in enumerate(computed) for read in reads(value, fused)}
    for at, value in enumerate(computed):
        if value not in scratch.places:
            assert value in elsewhere
            continue
        size = scratch.sizes[value.space == EDGES]
        start = scratch.places[value]
        assert start + value.size <= size
        for other in computed[:at]:
            if other in scratch.places and other.space == value.space and last.get(other, -1) >= at:
                begin = scratch.places[other]
                assert begin + other.size <= start or start + value.size <= begin
