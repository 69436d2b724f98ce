"""Errors name the whole that a part is of, and the example; `test_fold_*` have their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphfold import blocks as td

P, V = td.PyObjectType(), td.VoidType()


def test_a_note_names_the_example() -> None:
    with pytest.raises(td.BlockKeyError) as caught:
        td.compile(td.OneHot(3))([1, 2, 7])
    assert caught.value.__notes__ == ["in example 2 (counted from 0)"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_note_names_the_example_whoever_lowers_it(num_workers: int) -> None:
    model, examples = td.compile(td.Vector(2)), [[1, 2]] * 9 + [[0]] + [[1, 2]] * 9
    with pytest.raises(td.BlockTypeError) as caught:
        model.lower(examples, num_workers)
    assert caught.value.__notes__ == ["in example 9 (counted from 0)"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_notes_name_block_and_example_of_an_error_of_the_user(num_workers: int) -> None:
    model = td.compile(td.Map(td.InputTransform(inverse) >> td.Scalar()) >> td.Sum())
    with pytest.raises(ZeroDivisionError) as caught:
        model.lower([[1], [2, 0]], num_workers)
    block = "in <InputTransform py_fn='inverse'> of 0"
    assert caught.value.__notes__ == [block, "in example 1 (counted from 0)"]
    with pytest.raises(ZeroDivisionError) as caught:
        td.OneOf(inverse, {1: td.Scalar()}).eval(0)
    assert caught.value.__notes__ == [block]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("fn", [lambda x: x[2], lambda x: x + 1, lambda x: x.value])
def test_a_bad_first_example_is_named_whatever_a_function_raises_of_the_list(
    num_workers: int, fn: Callable[[Any], Any]
) -> None:
    block = td.InputTransform(lambda x: fn(x) if isinstance(x, list) else x) >> td.Scalar()
    model = td.compile(block)
    for call in (lambda: model.lower(["bad", 1.0], num_workers), lambda: model(["bad", 1.0])):
        with pytest.raises(td.BlockValueError, match="cannot make 'bad' a tensor") as caught:
            call()
        assert caught.value.__notes__ == ["in example 0 (counted from 0)"]


def test_a_single_example_is_named_whatever_a_function_raises_of_its_parts() -> None:
    model = td.compile(td.InputTransform(lambda pair: pair[1]) >> td.Scalar())
    with pytest.raises(td.BlockTypeError, match=r"not a single example: \[1, 2\]") as caught:
        model([1, 2])
    assert "not subscriptable" in str(caught.value.__cause__)


def inverse(x: float) -> float:
    return 1 / x


def test_a_key_error_is_shown_as_it_is() -> None:
    assert str(td.BlockKeyError("no key 'a'.")) == "no key 'a'."
