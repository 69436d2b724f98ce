"""Recomputation: what backward computes again, and where."""

from __future__ import annotations

import pytest

from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.derivatives import differentiate
from graphfold.batching.compiler.order import is_cheap, placed_before_readers
from graphfold.batching.compiler.values import EDGES, NODES, Value, ValueBuilder


@pytest.fixture
def to() -> ValueBuilder:
    return ValueBuilder(None)


def test_messages_made_of_rows_are_computed_again(to):
    rows, bond = (
        to.add(op.GATHER, EDGES, (4,), name="h"),
        Value(op.EDGE, EDGES, (4,), name="b").view,
    )
    total = to.apply(op.ADD, rows, bond)
    assert is_cheap(rows.value)
    assert is_cheap(to.apply(op.RELU, total).value)
    assert not is_cheap(to.apply(op.TANH, total).value)
    assert not is_cheap(to.apply(op.RELU, to.apply(op.EXP, rows)).value)


def test_sums_of_nodes_are_kept(to):
    total = to.add(op.GATHER_SUM, NODES, (4,), name="h")
    assert is_cheap(total.value)
    assert not is_cheap(to.apply(op.RELU, total).value)


def test_values_of_many_operations_are_kept(to):
    last = to.add(op.GATHER, EDGES, (4,), name="h")
    cheap = []
    for _ in range(40):  # each reads the one before it twice
        last = to.apply(op.ADD, last, last)
        cheap.append(is_cheap(last.value))
    assert cheap == [True] * 3 + [False] * 37


def test_relu_of_a_sum_is_not_computed_again(to):
    total = to.add(op.GATHER_SUM, NODES, (4,), name="h")
    end = to.apply(op.RELU, total)
    gradients = differentiate(to.values, {"h": end}, lambda value: True, None)
    (slope,) = (value for value in gradients.values if value.operation is op.RELU_GRAD)
    assert slope.inputs[1].value is end.value


def test_relu_of_a_message_is_not_computed_again_for_its_slope(to):
    rows = to.add(op.GATHER, EDGES, (4,), name="h")
    message = to.apply(op.RELU, rows)
    end = to.add(op.SUM_EDGES, NODES, (4,), [message])
    gradients = differentiate(to.values, {"h": end}, lambda value: True, None)
    (slope,) = (value for value in gradients.values if value.operation is op.RELU_GRAD)
    assert slope.inputs[1].value is rows.value


def test_each_is_computed_where_it_is_first_read(to):
    first, second, third = (to.add(op.GATHER, EDGES, (4,), name=name) for name in "abc")
    total = to.apply(op.ADD, first, second)
    again, to.values[:] = list(to.values), []
    one, two = to.apply(op.NEG, second), to.apply(op.MUL, total, second)
    values = placed_before_readers(again, [one.value, two.value])
    wanted = [second, one, first, total, two, third]
    assert [value.operation for value in values] == [view.value.operation for view in wanted]
    assert all(actual is view.value for actual, view in zip(values, wanted, strict=True))
