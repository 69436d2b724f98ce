"""Inputs and items, as TensorFlow Fold's tests have them: from Python objects to tensors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from block_checks import neg, times
from fold_checks import Cases, Faults, P, V, array, goes_wrong, hold, numbers
from torch import nn

from graphfold import blocks as td

TENSORS: Cases = {
    "scalar": (td.Scalar, 42, 42.0, 0),
    "scalar_int": (lambda: td.Scalar("int64"), 5, 5, 0),
    "scalar_whole": (lambda: td.Scalar("int32"), 3.0, 3, 0),
    "scalar_infinite": (lambda: td.Scalar("float16"), -float("inf"), -float("inf"), 0),
    "scalar_largest": (lambda: td.Scalar("float16"), 65504, 65504.0, 0),
    "scalar_bool": (lambda: td.Scalar("bool"), True, True, 0),
    "scalar_numpy": (td.Scalar, np.float32(2.5), 2.5, 0),
    "vector": (lambda: td.Vector(3), [1, 2, 3], [1.0, 2.0, 3.0], 0),
    "vector_range": (lambda: td.Vector(3), range(3), [0.0, 1.0, 2.0], 0),
    "vector_tuple": (lambda: td.Vector(2, "int32"), (1, 2), [1, 2], 0),
    "vector_empty": (lambda: td.Vector(0), [], [], 0),
    "matrix": (lambda: td.Tensor([2, 2], "int32"), [[1, 2], [3, 4]], [[1, 2], [3, 4]], 0),
    "matrix_numpy": (lambda: td.Tensor([1, 2]), np.array([[1, 2]]), [[1.0, 2.0]], 0),
    "tensor_scalar": (lambda: td.Tensor([]), 2, 2.0, 0),
    "from_torch": (lambda: td.FromTensor(torch.tensor([1, 2, 3])), None, [1, 2, 3], 0),
    "from_numpy": (lambda: td.FromTensor(np.zeros([2, 2], "int32")), None, [[0, 0], [0, 0]], 0),
    "from_parameter": (lambda: td.FromTensor(nn.Parameter(torch.ones(2))), None, [1.0, 1.0], 0),
    "from_scalar": (lambda: td.FromTensor(np.zeros([])), None, 0.0, 0),
    "doubled": (lambda: td.Scalar() >> times(2), 21, 42.0, 1),
    "constant_piped": (lambda: array([3.0]) >> times(2), None, [6.0], 1),
    "torch_piped": (lambda: torch.tensor([3.0]) >> times(2), None, [6.0], 1),
    "one_hot_first": (lambda: td.OneHot(2), 0, [1.0, 0.0], 0),
    "one_hot_last": (lambda: td.OneHot(2), 1, [0.0, 1.0], 0),
    "one_hot_start": (lambda: td.OneHot(100, 102), 100, [1.0, 0.0], 0),
    "one_hot_middle": (lambda: td.OneHot(100, 103), 101, [0.0, 1.0, 0.0], 0),
    "one_hot_five": (lambda: td.OneHot(5), 3, [0.0, 0.0, 0.0, 1.0, 0.0], 0),
    # In Fold a stop of 0 counts as not given.
    "one_hot_below_zero": (lambda: td.OneHot(-2, 0), -2, [1.0, 0.0], 0),
    "one_hot_int": (lambda: td.OneHot(2, dtype="int32"), 0, [1, 0], 0),
    "list_first": (lambda: td.OneHotFromList([37, 23]), 37, [1.0, 0.0], 0),
    "list_last": (lambda: td.OneHotFromList([37, 23], strict=False), 23, [0.0, 1.0], 0),
    "list_middle": (lambda: td.OneHotFromList([5, 9, 6]), 9, [0.0, 1.0, 0.0], 0),
    "list_unknown": (lambda: td.OneHotFromList([37, 23], strict=False), 100, [0.0, 0.0], 0),
    "list_words": (lambda: td.OneHotFromList(["a", ("b", 1)], "int32"), ("b", 1), [0, 1], 0),
}

ITEMS: Cases = {
    "transform": (lambda: td.InputTransform(str), 42, "42", 0),
    "identity_void": (lambda: td.Identity().set_input_type(V), None, None, 0),
    "identity_object": (td.Identity, {"a": 1}, {"a": 1}, 0),
    "letters": (
        lambda: td.Map(td.InputTransform(lambda c: ord(c) - 96) >> td.Scalar("int32")),
        "abcd",
        [1, 2, 3, 4],
        0,
    ),
    "letters_negative": (
        lambda: td.Map(td.InputTransform(lambda c: ord(c) - 96) >> td.Scalar("int32") >> neg()),
        "abcd",
        [-1, -2, -3, -4],
        1,
    ),
    "item": (lambda: td.GetItem(1) >> td.Scalar(), [1, 2, 3], 2.0, 0),
    "item_of_dict": (lambda: td.GetItem("k") >> td.Scalar(), {"k": 3}, 3.0, 0),
    "item_of_sequence": (lambda: numbers() >> td.GetItem(-1), range(10), 9.0, 0),
    "item_of_tuple": (lambda: (td.Scalar(), td.Scalar()) >> td.GetItem(-1), (1, 2), 2.0, 0),
    "item_beside_void": (lambda: td.AllOf(td.Void(), td.Scalar()) >> td.GetItem(1), 42, 42.0, 0),
    "items": (lambda: numbers() >> td.GetItem(slice(1, None)), range(3), [1.0, 2.0], 0),
    "length": (lambda: numbers("int32") >> td.Length(), [1, 2, 3], 3.0, 0),
    "length_range": (lambda: numbers("int32") >> td.Length(), range(10), 10.0, 0),
    "length_int": (lambda: numbers("float64") >> td.Length("int64"), [1, 2, 3], 3, 0),
    "length_of_list": (lambda: td.Length("int64"), [0, 1, 2], 3, 0),
    "length_of_range": (td.Length, range(4), 4.0, 0),
    "length_of_text": (td.Length, "abc", 3.0, 0),
    "length_of_nothing": (td.Length, [], 0.0, 0),
    "length_of_pair": (lambda: (td.Scalar(), td.Scalar()) >> td.Length("int32"), (0, 1), 2, 0),
    "length_of_empty": (lambda: td.Record([]) >> td.Length("int32"), (), 0, 0),
    "slice_text": (td.Slice, "abc", "abc", 0),
    "slice_stop": (lambda: td.Slice(stop=2), "abc", "ab", 0),
    "slice_start": (lambda: td.Slice(start=1), "abc", "bc", 0),
    "slice_back": (lambda: td.Slice(step=-1), "abc", "cba", 0),
    "slice_sequence": (lambda: numbers() >> td.Slice(stop=2), range(3), [0.0, 1.0], 0),
    "slice_reversed": (lambda: numbers() >> td.Slice(step=-1), range(3), [2.0, 1.0, 0.0], 0),
    "slice_pair": (lambda: (td.Scalar(), td.Scalar()) >> td.Slice(), (1, 2), (1.0, 2.0), 0),
    "slice_none": (lambda: (td.Scalar(), td.Scalar()) >> td.Slice(stop=0), (1, 2), (), 0),
    "slice_first": (lambda: (td.Scalar("int8"), td.Scalar()) >> td.Slice(stop=1), (1, 2), (1,), 0),
    "slice_swap": (
        lambda: (td.Scalar("int32"), td.Scalar()) >> td.Slice(step=-1),
        (1, 2),
        (2.0, 1),
        0,
    ),
    "nth_last": (lambda: (numbers("int32"), td.Identity()) >> td.Nth(), (range(5), -1), 4, 0),
}

MADE: Faults = {
    "from_number": (lambda: td.FromTensor(42), TypeError, "42 is not a tensor"),  # type: ignore
    "from_list": (lambda: td.FromTensor([1.0]), TypeError, "is not a tensor"),  # type: ignore
    "py_fn": (lambda: td.InputTransform(42), TypeError, "py_fn is not callable: 42"),  # type: ignore
    "item_number": (
        lambda: (td.Scalar(), td.Scalar()) >> td.GetItem(2),
        IndexError,
        "GetItem.*2 items.*item 2",
    ),
    "item_number_is_typed": (
        lambda: (td.Scalar(), td.Scalar()) >> td.GetItem(-3),
        TypeError,
        "GetItem.*2 items.*item -3",
    ),
    "item_name": (lambda: (td.Scalar(),) >> td.GetItem("a"), TypeError, "item 'a'"),
    "item_tensor": (lambda: td.Scalar() >> td.GetItem(0), TypeError, "bad input type TensorType"),
    "item_void": (lambda: td.Void() >> td.GetItem(0), TypeError, "bad input type VoidType"),
    "item_endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.GetItem(0),
        TypeError,
        "cannot get an item from an infinite sequence",
    ),
    "length_endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Length(),
        TypeError,
        "cannot get the length of an infinite sequence",
    ),
    "length_tensor": (lambda: td.Scalar() >> td.Length(), TypeError, "bad input type TensorType"),
    "slice_endless": (
        lambda: td.Scalar() >> td.Broadcast() >> td.Slice(stop=3),
        TypeError,
        "infinite sequence",
    ),
    "slice_position": (lambda: td.Slice(3), TypeError, "does not accept positional arguments"),
    "nth_three": (
        lambda: (td.Scalar(), td.Scalar(), td.Scalar()) >> td.Nth(),
        TypeError,
        r"expected a two-tuple of \(sequence, PyObject\) by <Nth>",
    ),
    "nth_scalars": (
        lambda: (td.Scalar(), td.Scalar()) >> td.Nth(),
        TypeError,
        r"Nth takes \(sequence, PyObject\), not TupleType",
    ),
    "nth_sequences": (
        lambda: (numbers(), numbers()) >> td.Nth(),
        TypeError,
        r"Nth takes \(sequence, PyObject\), not TupleType",
    ),
    "nth_tensor": (
        lambda: (numbers(), td.Scalar("int32")) >> td.Nth(),
        TypeError,
        r"Nth takes \(sequence, PyObject\), not TupleType",
    ),
    "nth_endless": (
        lambda: (td.Scalar() >> td.Broadcast(), td.InputTransform(len)) >> td.Nth(),
        TypeError,
        "cannot get an item from an infinite sequence",
    ),
    "nth_objects": (
        lambda: td.Record((td.Identity(), td.Identity())).set_input_type(P) >> td.Nth(),
        TypeError,
        "bad input type PyObjectType",
    ),
    "empty_range": (lambda: td.OneHot(0), IndexError, r"range \[0, 0\) is empty"),
    "empty_from": (lambda: td.OneHot(3, 3), IndexError, r"range \[3, 3\) is empty"),
    "backward": (lambda: td.OneHot(5, 2), IndexError, r"range \[5, 2\) is empty"),
    "twice": (
        lambda: td.OneHotFromList([1, 3, 3]),
        AssertionError,
        "OneHotFromList was passed duplicate elements.",
    ),
    "twice_loose": (
        lambda: td.OneHotFromList([1, 3, 3], strict=False),
        ValueError,
        "OneHotFromList was passed duplicate elements.",
    ),
    "list_number": (lambda: td.OneHotFromList(5), TypeError, "OneHotFromList.*'int'"),  # type: ignore
    "list_lists": (lambda: td.OneHotFromList([[1]]), TypeError, "unhashable"),  # type: ignore
    "one_hot_word": (lambda: td.OneHot("ab"), TypeError, "OneHot takes integers.*'ab'"),  # type: ignore
    "slice_step": (lambda: td.Slice(step=0), ValueError, "step of a Slice cannot be zero"),
    "no_elements": (lambda: td.OneHotFromList([]), ValueError, "at least one element"),
}

RUN: Faults = {
    "vector": (lambda: td.Vector(3).eval([1, 2]), TypeError, r"Vector.*\[3\].*\[2\]"),
    "vector_scalar": (lambda: td.Vector(1).eval(1), TypeError, r"Vector.*\[1\].*\[\]"),
    "scalar": (lambda: td.Scalar().eval([1]), TypeError, r"Scalar.*\[\].*\[1\]"),
    "flat": (lambda: td.Tensor([2, 2]).eval([1, 2, 3, 4]), TypeError, r"\[2, 2\].*\[4\]"),
    "word": (lambda: td.Scalar().eval("abc"), ValueError, "Scalar.*'abc'"),
    "none": (lambda: td.Scalar().eval(None), ValueError, "Scalar.*None"),
    "none_inside": (lambda: td.Vector(2).eval([None, 1]), ValueError, r"Vector.*\[None, 1\]"),
    "large": (lambda: td.Scalar("int8").eval(300), ValueError, "Scalar.*300.*int8"),
    "length": (lambda: td.Length().eval(5), TypeError, "Length.*length of 5"),
    "item_of_none": (lambda: td.GetItem("a").eval(None), TypeError, "GetItem.*None.*'a'"),
    "record_of_none": (
        lambda: td.Record({"a": td.Scalar()}).eval(None),
        TypeError,
        "Record.*None.*'a'",
    ),
    "name_of_list": (lambda: td.GetItem("a").eval([1]), TypeError, r"GetItem.*\[1\].*'a'"),
    "nth_name": (
        lambda: ((numbers(), td.Identity()) >> td.Nth()).eval(([1], "a")),
        TypeError,
        "Nth.*'a'",
    ),
    "one_hot_list_in": (lambda: td.OneHotFromList([1]).eval([1]), KeyError, r"\[1\]"),
    "uneven": (lambda: td.Tensor([2, 2]).eval([[1, 2], [3]]), ValueError, "Tensor"),
    "no_key": (lambda: (td.GetItem("k") >> td.Scalar()).eval({}), KeyError, "GetItem.*'k'"),
    "no_item": (lambda: (td.GetItem(5) >> td.Scalar()).eval([1]), IndexError, "GetItem.*5"),
    "nothing": (lambda: (numbers() >> td.GetItem(0)).eval([]), IndexError, "GetItem.*0"),
    "nth": (
        lambda: ((numbers(), td.Identity()) >> td.Nth()).eval((range(5), 5)),
        IndexError,
        "Nth.*5",
    ),
    "nth_empty": (
        lambda: ((numbers(), td.Identity()) >> td.Nth()).eval(([], 0)),
        IndexError,
        "Nth.*0",
    ),
    "one_hot": (lambda: td.OneHot(3).eval(3), KeyError, "OneHot.*3"),
    "one_hot_below": (lambda: td.OneHot(3).eval(-1), KeyError, "OneHot.*-1"),
    "one_hot_list": (lambda: td.OneHotFromList([37, 23]).eval(100), KeyError, "100"),
}


@pytest.mark.parametrize("name", [*TENSORS, *ITEMS])
def test_value(name: str) -> None:
    hold(*{**TENSORS, **ITEMS}[name])


@pytest.mark.parametrize("position", range(5))
def test_nth(position: int) -> None:
    hold(lambda: (numbers("int32"), td.Identity()) >> td.Nth(), (range(5), position), position, 0)


@pytest.mark.parametrize("name", [*MADE, *RUN])
def test_error(name: str) -> None:
    goes_wrong({**MADE, **RUN}[name])


def test_slices_have_four_arguments() -> None:
    with pytest.raises(TypeError, match="foo"):
        td.Slice(foo=1)  # type: ignore[call-arg]


def test_objects_are_passed_on_as_they_are() -> None:
    thing = object()
    assert td.Identity().eval(thing) is thing
    assert td.Pipe().eval(thing) is thing
    assert td.GetItem(0).eval([thing]) is thing


def test_what_a_transform_raises_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        (td.InputTransform(lambda x: 1 / x) >> td.Scalar()).eval(0)


def test_blocks_show_what_they_were_made_of() -> None:
    transform = td.InputTransform(len)
    assert transform.py_fn is len
    assert td.GetItem(3).key == 3
    assert td.Slice(start=1).key == slice(1, None)  # type: ignore[attr-defined]
    value = nn.Parameter(torch.ones(2))
    assert td.FromTensor(value).tensor is value
    assert td.FromTensor(np.zeros([])).output_type == td.TensorType((), "float64")


@pytest.mark.parametrize("make", [int, np.int64, torch.tensor])
def test_an_integer_that_the_dtype_cannot_hold_is_refused(make: Any) -> None:
    assert td.Scalar("uint8").eval(make(255), tolist=True) == 255
    for number in (256, -1):
        for block, example in (
            (td.Scalar("uint8"), make(number)),
            (td.Vector(1, "uint8"), [make(number)]),
        ):
            with pytest.raises(td.BlockValueError, match="out of bounds"):
                block.eval(example)


INEXACT = [
    ("int64", 2.5, "2.5 is not whole, as needed for int64"),
    ("int32", -2.9, "-2.9 is not whole"),
    ("int64", Decimal("2.5"), "2.5 is not whole"),
    ("int8", np.float32(2.5), "2.5 is not whole"),
    ("int64", torch.tensor(-0.5), "-0.5 is not whole"),
    ("uint8", 300.0, ".*300 .*out of bounds for uint8"),
    ("int64", np.float64("nan"), "out of bounds for int64|cannot convert float NaN"),
    ("int64", np.float64(1e19), "out of bounds for int64|int too large"),
    ("bool", 2, "2 is out of bounds for bool"),
    ("bool", 0.5, "0.5 is not whole"),
    ("bool", "False", "could not convert string to float: .*'False'"),
    ("float16", 70_000, "out of bounds for float16"),
    ("float16", np.float32(1e6), "out of bounds for float16"),
    ("bfloat16", 1e39, "out of bounds for bfloat16"),
    ("float32", 1e39, "out of bounds for float32"),
    ("float32", 10**40, "out of bounds for float32"),
    ("float32", "-1e39", "out of bounds for float32"),
]


# Fold cuts 3.7 to 3 for an int32, and has an infinity for what is too large.
@pytest.mark.parametrize(("dtype", "number", "fault"), INEXACT)
def test_a_number_that_the_dtype_would_change_is_refused(
    dtype: str, number: Any, fault: str
) -> None:
    with pytest.raises(td.BlockValueError, match=f"cannot make .* a tensor: {fault}"):
        td.Scalar(dtype).eval(number)
    with pytest.raises(td.BlockValueError, match=f"cannot make .* a tensor: {fault}"):
        td.compile(td.Vector(2, dtype))([[1, number]])


def test_an_example_has_no_gradient() -> None:
    learned = torch.ones(2, requires_grad=True)
    for block, example in ((td.Vector(2), learned), (td.Tensor([1, 2]), [learned])):
        with pytest.raises(td.BlockValueError, match="requires grad.*detach"):
            block.eval(example)
        with pytest.raises(td.BlockValueError, match="requires grad.*detach"):
            td.compile(block)([example])
