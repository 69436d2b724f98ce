"""Scratch memory: values that need none, and no value lies where one lies that is still read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfold.batching.backends.scratch import allocate, fuse, product_of, reads
from graphfold.batching.compiler import operations as op
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


WEIGHT = Value(CONSTANT, WHOLE, (4, 4), name="0").view


@pytest.fixture
def to() -> ValueBuilder:
    return ValueBuilder(None)


def test_a_product_is_computed_with_what_ends_it(to):
    x, y = (to.add(op.PULL, NODES, (4,), name=name) for name in "xy")
    product = to.add(op.MULTIPLY, NODES, (4,), [x, WEIGHT])
    total = to.apply(op.ADD, product, y)
    end = to.apply(op.RELU, total)
    fused = fuse(to.values, {end.value})
    assert set(fused) == {product.value, total.value}
    assert product_of(end.value, fused) is product.value
    assert list(reads(end.value, fused)) == [x.value, WEIGHT.value, y.value]


@pytest.mark.parametrize("why", ["read twice", "a result", "another shape", "one row for all"])
def test_a_product_is_computed_alone(to, why):
    x = to.add(op.PULL, NODES, (4,), name="x")
    product = to.add(op.MULTIPLY, NODES, (4,), [x, WEIGHT])
    places = {product.value} if why == "a result" else set()
    if why == "another shape":
        to.apply(op.RELU, product.arranged((2, 2), (1, 2)))
    elif why == "one row for all":
        to.apply(op.ADD, product, Value(CONSTANT, WHOLE, (4,), name="1").view)
    else:
        to.apply(op.RELU, product)
    if why == "read twice":
        to.apply(op.EXP, product)
    assert not fuse(to.values, places)


def test_only_one_of_two_products_is_added_to_the_other(to):
    x = to.add(op.PULL, NODES, (4,), name="x")
    products = [to.add(op.MULTIPLY, NODES, (4,), [x, WEIGHT]) for _ in range(2)]
    end = to.apply(op.ADD, *products)
    fused = fuse(to.values, set())
    assert len(fused) == 1
    assert product_of(end.value, fused) in [product.value for product in products]


def test_rows_are_read_where_they_lie(to):
    x = to.add(op.PULL, NODES, (4,), name="x")
    rows, own = to.add(op.GATHER, EDGES, (4,), name="h"), to.add(op.EXPAND, EDGES, (4,), [x])
    end = to.apply(op.MUL, rows, own)
    fused = fuse(to.values, set())
    assert set(fused) == {rows.value, own.value}
    assert list(reads(end.value, fused)) == [x.value]


@pytest.mark.parametrize("reader", [op.MULTIPLY, op.SUM_EDGES, op.MAX_EDGES, op.MUL], ids=str)
def test_rows_are_copied_for_other_readers(to, reader):
    rows = to.add(op.GATHER, EDGES, (4,), name="h")
    if reader is op.MUL:
        to.apply(op.MUL, rows, rows)
    else:
        inputs = [rows, WEIGHT] if reader is op.MULTIPLY else [rows]
        to.add(reader, EDGES if reader is op.MULTIPLY else NODES, (4,), inputs)
    assert not fuse(to.values, set())
