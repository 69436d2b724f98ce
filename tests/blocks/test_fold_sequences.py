"""Map and Fold, as TensorFlow Fold's tests have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from block_checks import add, neg, sub
from fold_checks import Cases, Faults, array, goes_wrong, hold, numbers
from torch import Tensor

from graphfold import blocks as td


def absolute() -> td.Block:
    return td.Map(td.Scalar() >> td.Function(torch.abs))


def doubling() -> td.Block:
    return td.Function(lambda value, x: 2 * value + x)


def counted(value: Any, x: Tensor) -> Any:
    return value[0] + x, value[1] + 1


MAPS: Cases = {
    "empty": (absolute, [], [], 0),
    "one": (absolute, [-1], [1.0], 1),
    "several": (absolute, [-1, -2, -3], [1.0, 2.0, 3.0], 1),
    "nested_empty": (lambda: td.Map(absolute()), [[]], [[]], 0),
    "nested": (
        lambda: td.Map(absolute()),
        [[-1, -2, -3], [-4, -5], [-6], []],
        [[1.0, 2.0, 3.0], [4.0, 5.0], [6.0], []],
        1,
    ),
    "constants": (lambda: td.Map(numbers()), [[1], [], [2, 3]], [[1.0], [], [2.0, 3.0]], 0),
    "pair": (lambda: (td.Scalar(), td.Scalar()) >> td.Map(neg()), (3, 4), [-3.0, -4.0], 1),
    "text": (lambda: td.Map(td.OneHotFromList("ab")), "ba", [[0.0, 1.0], [1.0, 0.0]], 0),
    "range": (numbers, range(3), [0.0, 1.0, 2.0], 0),
    "keys": (numbers, {1: "a", 2: "b"}, [1.0, 2.0], 0),
    "objects": (lambda: td.Map(td.InputTransform(str)), [1, 2], ["1", "2"], 0),
    "converted": (lambda: td.Map({"b": td.Scalar()}), [{"b": 1}, {"b": 2}], [(1.0,), (2.0,)], 0),
    "void": (lambda: td.Map(td.Void()), [1, 2], [None, None], 0),
    "constant": (lambda: td.Map(td.AllOf(td.Void(), array(1))), [5], [(None, 1.0)], 0),
}

FOLDS: Cases = {
    "three": (lambda: numbers() >> td.Fold(add(), array(10)), [1, 2, 3], 16.0, 3),
    "other_order": (lambda: numbers() >> td.Fold(add(), array(10)), [3, 1, 2], 16.0, 3),
    "four": (lambda: numbers() >> td.Fold(add(), array(10)), [1, 2, 3, 4], 20.0, 4),
    "empty": (lambda: numbers() >> td.Fold(add(), array(10)), [], 10.0, 0),
    "pair": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Fold(add(), torch.ones([])),
        (2, 3),
        6.0,
        2,
    ),
    "object": (
        lambda: td.Fold((td.Identity(), td.Scalar()) >> td.Sum(), td.Zeros([])),
        (2, 3),
        5.0,
        2,
    ),
    "left": (lambda: numbers() >> td.Fold(doubling(), td.Zeros([])), [1, 1, 1], 7.0, 3),
    "left_order": (lambda: numbers() >> td.Fold(doubling(), td.Zeros([])), [1, 2, 3], 11.0, 3),
    "tuple": (
        lambda: numbers() >> td.Fold(td.Function(counted), td.Zeros(([], []))),
        [3, 4],
        (7.0, 2.0),
        2,
    ),
    "folded_maps": (
        lambda: td.Map(numbers() >> td.Fold(add(), td.Zeros([]))) >> td.Fold(sub(), td.Zeros([])),
        [[1, 2], [], [4]],
        -7.0,
        5,
    ),
}

FAULTS: Faults = {
    "map_mixed": (
        lambda: (td.Scalar(), td.Vector(2)) >> td.Map(neg()),
        TypeError,
        r"tuple item types must all be equal: TupleType\(.*\(\).*\(2,\)",
    ),
    "map_empty": (lambda: td.Record([]) >> td.Map(neg()), TypeError, "expected a non-empty tuple"),
    "map_tensor": (lambda: td.Scalar() >> td.Map(neg()), TypeError, "bad input type TensorType"),
    "map_void": (lambda: td.Void() >> td.Map(neg()), TypeError, "bad input type VoidType"),
    "map_root": (lambda: td.Map(neg()).eval([1]), TypeError, "bad input type PyObjectType"),
    "map_number": (lambda: td.Map(42), TypeError, "42 cannot be converted to a block"),
    "map_type": (
        lambda: numbers() >> td.Map(neg().set_input_type([3])),
        TypeError,
        r"Type mismatch between input type .*\(\).* and expected input type .*\(3,\)",
    ),
    "fold_start": (
        lambda: td.Fold(add(), td.Scalar()),
        TypeError,
        "Type mismatch between input type VoidType.*PyObjectType.*Scalar",
    ),
    "fold_shape": (
        lambda: numbers() >> td.Fold(add(), td.Zeros([3])),
        TypeError,
        r"Map.*Fold.*cannot take TupleType.*\(3,\).*\(\)",
    ),
    "fold_result": (
        lambda: numbers() >> td.Fold(td.Function(lambda value, x: x.int()), td.Zeros([])),
        TypeError,
        "Type mismatch between output type .*int32.* and expected output type .*float32",
    ),
    "fold_dtype": (
        lambda: numbers() >> td.Fold(td.Function(lambda value, x: x), np.array(10.0)),
        TypeError,
        "Type mismatch between output type .*float32.* and expected output type .*float64",
    ),
    "fold_single": (
        lambda: td.Fold(neg().set_input_type([3]), td.Zeros([3])),
        TypeError,
        r"expected a two-tuple of \(value, element\) by combine_block",
    ),
    "fold_triple": (
        lambda: td.Fold(td.Function(torch.addcmul).set_input_type(([], [], [])), td.Zeros([])),
        TypeError,
        r"expected a two-tuple of \(value, element\) by combine_block",
    ),
    "fold_endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Fold(add(), td.Zeros([])),
        TypeError,
        "cannot fold over an infinite sequence",
    ),
    "map_of_number": (lambda: numbers().eval(5), TypeError, "Map.*5 has no elements"),
    "fold_of_number": (
        lambda: td.Fold((td.Identity(), td.Scalar()) >> td.Sum(), td.Zeros([])).eval(5),
        TypeError,
        "Fold.*5 has no elements",
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_map(name: str) -> None:
    hold(*MAPS[name])


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name: str) -> None:
    hold(*FOLDS[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


@pytest.mark.parametrize("length", range(5))
def test_the_depth_of_a_fold_is_the_length(length: int) -> None:
    hold(lambda: numbers() >> td.Fold(add(), td.Zeros([])), [1] * length, float(length), length)


def test_sequences_show_their_parts() -> None:
    element, combine, start = td.Scalar(), add(), td.Zeros([])
    assert td.Map(element).element_block is element
    fold = td.Fold(combine, start)
    assert (fold.combine_block, fold.start_block) == (combine, start)
