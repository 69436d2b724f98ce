"""Fusion: values that are computed together with their reader, and values that are not."""

from __future__ import annotations

import pytest

from graphfold.batching.backends.fusion import fuse, product_of, reads
from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.values import CONSTANT, EDGES, NODES, WHOLE, Value, ValueBuilder

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
