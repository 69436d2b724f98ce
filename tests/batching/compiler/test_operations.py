"""Operations: each has a name of its own, and a place in every backend."""

from __future__ import annotations

import pytest
import torch

from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.operations import Term as T
from graphfold.batching.compiler.operations import where
from graphfold.batching.compiler.values import (
    CONSTANT,
    COPY,
    GIVEN,
    MEAN_OF_GROUP,
    NODES,
    OF_GROUP,
    Operation,
    ValueBuilder,
)
from graphfold.batching.native import library

ALL = [CONSTANT, COPY, MEAN_OF_GROUP]
ALL += [own for own in vars(op).values() if isinstance(own, Operation)]
#: What the native backend makes of several instructions.
SEVERAL = (op.CAT, op.REDUCE_SUM, op.REDUCE_MAX, op.ASSEMBLE)


def test_no_two_operations_have_one_name() -> None:
    names = [operation.name for operation in dict.fromkeys(ALL)]
    assert len(names) > 50
    assert len(set(names)) == len(names)


@pytest.mark.skipif(library.why_missing(torch.float64) is not None, reason="no native library")
def test_native_code_has_a_function_for_each() -> None:
    there = library.operations(torch.float64)
    wanted = [own for own in ALL if own.kind not in (GIVEN, OF_GROUP) and own not in SEVERAL]
    # Products have one function for a weight as it lies and transposed: packing turns it.
    names = {(own.native or own.name).removesuffix("_transposed") for own in wanted}
    assert names <= there.keys()


def test_a_formula_writes_operations_in_the_order_of_its_operators() -> None:
    to = ValueBuilder(None)
    x, y = (T(to, to.add(op.X, NODES, (3,), name=name)) for name in "xy")
    where(x.do(op.EQ, y), -(x * 1.0), (x + 2.0).do(op.EXP) * y / x - 0.5)
    written = [str(value.operation) for value in to.values[2:]]
    assert written == ["eq", "neg", "add", "exp", "mul", "div", "sub", "where"]
    assert to.apply(op.MUL, x.view, 1.0) is x.view
