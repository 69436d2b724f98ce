"""OneOf and Optional, as TensorFlow Fold's tests have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from block_checks import neg
from fold_checks import Cases, Faults, P, array, goes_wrong, hold, numbers, objects, scalar
from torch import nn

from graphfold import blocks as td


def sign() -> td.Block:
    return td.OneOf(lambda x: x > 0, {True: td.Scalar(), False: td.Scalar() >> neg()})


def with_pre_block() -> td.Block:
    cases = {"a": td.GetItem("bar") >> td.Scalar(), "b": td.GetItem("baz") >> td.Scalar()}
    return td.OneOf(lambda x: x["key"], cases, td.GetItem("val"))


def mixed() -> td.Block:
    cases = (td.Function(torch.square), neg())
    one_of = td.OneOf(key_fn=td.GetItem(0), case_blocks=cases, pre_block=td.GetItem(1))
    return (td.Identity(), td.Scalar("int32")) >> one_of


def numbered() -> td.Block:
    cases = (array(10), array(20), array(30))
    return td.OneOf(td.GetItem("index"), cases, pre_block=td.Void())


def record() -> td.Block:
    return td.Optional({"a": td.Map({"b": td.Scalar(), "c": td.Scalar()}), "d": td.Vector(3)})


VALUES: Cases = {
    "positive": (sign, 3, 3.0, 0),
    "negative": (sign, -3, 3.0, 1),
    "bar": (with_pre_block, {"key": "a", "val": {"bar": 42, "baz": 0}}, 42.0, 0),
    "baz": (with_pre_block, {"key": "b", "val": {"bar": 42, "baz": 0}}, 0.0, 0),
    "square": (mixed, (0, 2), 4, 1),
    "negated": (mixed, (1, 2), -2, 1),
    "pairs": (lambda: td.OneOf(len, [(1, td.Length()), (2, td.Scalar())]), "x", 1.0, 0),
    "truth": (lambda: td.OneOf(bool, (td.Scalar() >> neg(), td.Scalar())), 3, 3.0, 0),
    "key_block": (
        lambda: td.OneOf(td.InputTransform(len), {1: td.Length(), 2: numbers() >> td.Sum()}),
        [3, 4],
        7.0,
        1,
    ),
    "types": (
        lambda: td.OneOf(type, {int: td.Scalar(), list: td.Length(), type(None): td.Length()}),
        [3, 4],
        2.0,
        0,
    ),
    "first": (numbered, {"index": 0}, 10.0, 0),
    # Fold's manual says so; its code has no such case.
    "last": (numbered, {"index": -1}, 30.0, 0),
    "some": (lambda: td.Optional(td.Vector(4)), [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], 0),
    "none": (lambda: td.Optional(td.Vector(4)), None, [0.0] * 4, 0),
    "some_array": (lambda: td.Optional(td.Scalar(), array(42)), 6, 6.0, 0),
    "none_array": (lambda: td.Optional(td.Scalar(), array(42)), None, 42.0, 0),
    "some_record": (
        record,
        {"a": [{"b": 0, "c": 1}], "d": [2, 3, 4]},
        ([(0.0, 1.0)], [2.0, 3.0, 4.0]),
        0,
    ),
    "none_record": (record, None, ([], [0.0, 0.0, 0.0]), 0),
    "zero_is_some": (lambda: td.Optional(td.Scalar(), array(42)), 0, 0.0, 0),
    "empty_is_some": (lambda: td.Optional(td.Length(), array(42)), [], 0.0, 0),
    "text_is_some": (lambda: td.Optional(td.Length(), array(42)), "", 0.0, 0),
    "none_in_map": (lambda: td.Map(td.Optional(td.Scalar("int32"))), [1, None], [1, 0], 0),
    "void_some": (lambda: td.Optional(td.Void()), 3, None, 0),
    "computed": (lambda: td.Optional(td.Scalar() >> neg()) >> neg(), None, 0.0, 1),
}

FAULTS: Faults = {
    "key_fn": (lambda: td.OneOf(42, (td.Scalar(),)), TypeError, "key_fn is not callable: 42"),
    "no_cases": (lambda: td.OneOf(len, {}), ValueError, "case_blocks must be non-empty"),
    "no_pairs": (lambda: td.OneOf(len, []), ValueError, "case_blocks must be non-empty"),
    "no_tuple": (lambda: td.OneOf(len, ()), ValueError, "case_blocks must be non-empty"),
    "key_twice": (
        lambda: td.OneOf(len, [(1, td.Scalar()), (True, td.Length())]),
        ValueError,
        "case_blocks name a key twice: 1, True",
    ),
    "number": (lambda: td.OneOf(len, 42), TypeError, "42"),  # type: ignore[arg-type]
    "outputs": (
        lambda: td.OneOf(len, {0: td.Scalar(), 1: td.Vector(2)}),
        TypeError,
        r"Scalar.*Vector.*OneOf.*Type mismatch between output type .*\(2,\).*\(\)",
    ),
    "inputs": (
        lambda: td.OneOf(len, {0: td.Scalar(), 1: array(1)}),
        TypeError,
        "Scalar.*FromTensor.*OneOf.*Type mismatch between input type VoidType.*PyObjectType",
    ),
    "tensor_key": (
        lambda: td.OneOf(td.Scalar(), {0: td.Scalar()}),
        TypeError,
        "Type mismatch between output type PyObjectType",
    ),
    "tensor_case": (
        lambda: td.OneOf(len, (neg(),)),
        TypeError,
        "bad input type PyObjectType.*Function",
    ),
    "void_case": (
        lambda: td.OneOf(len, (array(1),)),
        TypeError,
        "Type mismatch between input type",
    ),
    "module_key": (
        lambda: td.OneOf(nn.Linear(2, 2), (td.Scalar(),)),
        TypeError,
        "bad output type PyObjectType",
    ),
    "pre_block": (
        lambda: td.OneOf(len, (td.Scalar(),), pre_block=td.Scalar()),
        TypeError,
        "Type mismatch between input type",
    ),
    "unknown": (
        lambda: td.OneOf(lambda x: x["op"], {"add": td.Length()}).eval({"op": "mul"}),
        KeyError,
        "no case for the key 'mul'.*'add'",
    ),
    "unknown_number": (lambda: numbered().eval({"index": 3}), KeyError, "no case for the key 3"),
    "unhashable": (lambda: numbered().eval({"index": []}), KeyError, r"the key \[\]"),
    "object": (
        lambda: td.Optional(td.Identity()),
        TypeError,
        "all terminal types must be tensors: PyObjectType",
    ),
    "function": (lambda: td.Optional(neg()), TypeError, "bad input type PyObjectType.*Function"),
    "none_type": (
        lambda: td.Optional(td.Scalar(), array([1, 2])),
        TypeError,
        "Type mismatch between output type",
    ),
    "none_dtype": (
        lambda: td.Optional(td.Scalar(), np.array(42)),
        TypeError,
        "Scalar.*FromTensor.*Optional.*Type mismatch between output type .*int64.*float32",
    ),
    "none_input": (
        lambda: td.Optional(td.Scalar(), td.Scalar()),
        TypeError,
        "Type mismatch between input type VoidType",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    hold(*VALUES[name])


@pytest.mark.parametrize("name", FAULTS)
def test_error(name: str) -> None:
    goes_wrong(FAULTS[name])


def test_a_key_that_is_unknown_can_be_read_off_the_error() -> None:
    with pytest.raises(td.BlockKeyError) as caught:
        td.compile(numbered())([{"index": 0}, {"index": "x"}])
    assert caught.value.key == "x"  # type: ignore[attr-defined]


def test_the_type_of_an_optional_block_may_come_later() -> None:
    child = td.Scalar() >> td.Function(torch.neg, infer_output_type=False)
    block = td.Optional(child)
    assert block.output_type is None
    child.set_output_type([])
    assert block.output_type == scalar
    hold(lambda: block, None, 0.0, 0)


def test_types_of_choices() -> None:
    assert (sign().input_type, sign().output_type) == (P, scalar)
    assert td.OneOf(len, (td.Scalar(), td.Identity() >> td.Scalar())).output_type == scalar
    assert td.Optional(td.Vector(2)).input_type == P
    assert td.Optional(numbers()).output_type == td.SequenceType(scalar)
    pre = td.OneOf(td.GetItem(0), (neg(), neg()), pre_block=td.GetItem(1))
    assert ((objects(), td.Vector(2)) >> pre).output_type == td.TensorType([2])
