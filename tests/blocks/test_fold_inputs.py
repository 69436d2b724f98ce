"""Inputs and items, as TensorFlow Fold's tests have them: from Python objects to tensors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from graphfold import blocks as td


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
