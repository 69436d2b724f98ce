"""Reduce, Sum, Min, Max and Mean, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, sub
from fold_checks import Cases, Faults, array, goes_wrong, hold, numbers, objects, scalar
from torch import Tensor

from graphfold import blocks as td


def with_default() -> td.Block:
    return numbers() >> td.Reduce(add(), array(10))


def doubling() -> td.Block:
    return numbers() >> td.Reduce(td.Function(lambda left, right: 2 * left + right))


def both(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return left[0] + right[0], left[1] * right[1]


def vectors(block: td.Block) -> td.Block:
    return td.Map(td.Vector(2)) >> block


ROWS = [[1, 5], [2, 3], [0, 4]]

VALUES: Cases = {
    "default": (with_default, [], 10.0, 0),
    "two": (with_default, [1, 2], 3.0, 1),
    "four": (with_default, [2, 4, 6, 8], 20.0, 2),
    "three": (with_default, [1, 2, 3], 6.0, 2),
    "seven": (with_default, range(7), 21.0, 3),
    "zeros": (lambda: numbers() >> td.Reduce(add()), [], 0.0, 0),
    "zeros_two": (lambda: numbers() >> td.Reduce(add()), [1, 2], 3.0, 1),
    "zeros_seven": (lambda: numbers() >> td.Reduce(add()), range(7), 21.0, 3),
    "default_vector": (lambda: vectors(td.Reduce(add(), array([1, 2]))), [], [1.0, 2.0], 0),
    "double": (doubling, [1, 1, 1], 7.0, 2),
    "double_four": (doubling, [1, 1, 1, 1], 9.0, 2),
    "pair": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Reduce(td.Function(torch.mul)),
        (3, 4),
        12.0,
        1,
    ),
    "tuples": (
        lambda: td.Map(td.AllOf(td.Scalar(), td.Scalar())) >> td.Reduce(td.Function(both)),
        [1, 2, 3, 4],
        (10.0, 24.0),
        2,
    ),
    "tuples_empty": (
        lambda: td.Map(td.AllOf(td.Scalar(), td.Scalar())) >> td.Reduce(td.Function(both)),
        [],
        (0.0, 0.0),
        0,
    ),
    "sum": (lambda: vectors(td.Sum()), ROWS, [3.0, 12.0], 2),
    "min": (lambda: vectors(td.Min()), ROWS, [0.0, 3.0], 2),
    "max": (lambda: vectors(td.Max()), ROWS, [2.0, 5.0], 2),
    "mean": (lambda: vectors(td.Mean()), ROWS, [1.0, 4.0], 3),
    "mean_of_matrices": (
        lambda: td.Map(td.Tensor([2, 3])) >> td.Mean(),
        [[[1, 2, 3], [4, 5, 6]], [[3, 4, 5], [6, 7, 8]]],
        [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]],
        2,
    ),
    "mean_of_tuple": (lambda: (td.Scalar(),) * 3 >> td.Mean(), (0, 0, 6), 2.0, 3),
    "sum_of_tuple": (lambda: (td.Scalar(), td.Scalar()) >> td.Sum(), (1, 2), 3.0, 1),
    "sum_of_ints": (lambda: numbers("int32") >> td.Sum(), [1, 2], 3, 1),
    "sum_of_one": (lambda: numbers() >> td.Sum(), [-7], -7.0, 0),
    "max_of_negative": (lambda: numbers() >> td.Max(), [-3, -1], -1.0, 1),
    "min_of_ints": (lambda: numbers("int64") >> td.Min(), [2**60 + 1, 2**60], 2**60, 1),
    "max_of_computed": (
        lambda: td.Map(td.Scalar() >> td.Function(torch.neg)) >> td.Max(),
        [3, 1, 2],
        -1.0,
        3,
    ),
    "sums_of_sums": (
        lambda: td.Map(numbers() >> td.Sum()) >> td.Max(),
        [[1, 2], [], [-5]],
        3.0,
        3,
    ),
}

FAULTS: Faults = {
    "object": (
        lambda: objects() >> td.Sum(),
        TypeError,
        "bad input type PyObjectType.*Sum",
    ),
    "root": (lambda: td.Reduce(add()).eval([1]), TypeError, "bad input type PyObjectType.*Reduce"),
    "tensor": (lambda: td.Vector(2) >> td.Sum(), TypeError, "bad input type TensorType.*Sum"),
    "endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Reduce(add()),
        TypeError,
        "cannot reduce an infinite sequence: Broadcast",
    ),
    "endless_mean": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Mean(),
        TypeError,
        "infinite sequence",
    ),
    "mixed": (
        lambda: (td.Scalar(), td.Vector(2)) >> td.Sum(),
        TypeError,
        "tuple item types must all be equal",
    ),
    "nothing": (lambda: td.Record([]) >> td.Max(), TypeError, "non-empty tuple"),
    "default_shape": (
        lambda: numbers() >> td.Reduce(add(), td.Zeros([3])),
        TypeError,
        r"Type mismatch between output type",
    ),
    "default_dtype": (
        lambda: numbers() >> td.Reduce(add(), np.zeros([])),
        TypeError,
        "Map.*Reduce.*Type mismatch between output type .*float32.*float64.*FromTensor",
    ),
    "default_input": (
        lambda: td.Reduce(add(), td.Scalar()),
        TypeError,
        "Type mismatch between input type VoidType",
    ),
    "combined": (
        lambda: numbers() >> td.Reduce(td.Function(lambda left, right: left.int())),
        TypeError,
        "Map.*Reduce.*Type mismatch between output type .*float32.*int32.*Function",
    ),
    "sequences": (
        lambda: td.Map(numbers()) >> td.Sum(),
        TypeError,
        "Sum.*SequenceType",
    ),
    # Fold divides by a float32 length, so it refuses them too.
    "mean_of_ints": (lambda: numbers("int32") >> td.Mean(), TypeError, "Mean.*int32"),
}

#: The order of combination, seen through subtraction.
TREES = {
    1: (1.0, 0),
    2: (1.0 - 2, 1),
    3: ((1.0 - 2) - 3, 2),
    4: ((1.0 - 2) - (3 - 4), 2),
    5: (((1.0 - 2) - (3 - 4)) - 5, 3),
    6: (((1.0 - 2) - (3 - 4)) - (5 - 6), 3),
    7: (((1.0 - 2) - (3 - 4)) - ((5 - 6) - 7), 3),
    8: (((1.0 - 2) - (3 - 4)) - ((5 - 6) - (7 - 8)), 3),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


@pytest.mark.parametrize("length", TREES)
def test_neighbours_are_combined_and_an_odd_one_waits(length: int) -> None:
    value, depth = TREES[length]
    hold(lambda: numbers() >> td.Reduce(sub()), range(1, length + 1), value, depth)


@pytest.mark.parametrize("kind", [td.Sum, td.Min, td.Max, td.Mean])
@pytest.mark.parametrize(("shape", "zeros"), [([], 0.0), ([2], [0.0] * 2), ([1, 2], [[0.0] * 2])])
def test_of_nothing_all_are_zero(kind: Any, shape: list[int], zeros: Any) -> None:
    block = td.Map(td.Tensor(shape)) >> kind()
    assert block.output_type == td.TensorType(shape)
    assert block.eval([], tolist=True) == zeros
    batch = td.compile(block)([[], [np.ones(shape)]])
    assert batch[0].tolist() == zeros
    assert batch[1].tolist() == np.ones(shape).tolist()


def test_reduce_shows_its_parts() -> None:
    combine, default = add(), td.Zeros([])
    block = td.Reduce(combine, default)
    assert (block.combine_block, block.default_block) == (combine, default)
    assert (numbers() >> td.Reduce(add())).output_type == scalar
