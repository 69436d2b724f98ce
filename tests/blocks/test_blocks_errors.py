"""Errors name the whole that a part is of, and the example; `test_fold_*` have their kinds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest
from block_checks import add, neg

from graphfold import blocks as td
from graphfold.errors import GraphfoldError

P, V = td.PyObjectType(), td.VoidType()


WHOLE: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "case": (
        lambda: td.OneOf(len, {2: neg()}).set_input_type(P),
        TypeError,
        "^<OneOf>: bad input type PyObjectType.* for <Function fn='neg'>",
    ),
    "connected_case": (
        lambda: td.Scalar() >> td.AllOf(td.AllOf(td.FC(2))),
        TypeError,
        r"^cannot connect <Scalar .* to <AllOf>: FC input shape must be 1D: \[\]",
    ),
    "item": (
        lambda: td.Record((td.Scalar(), neg())).set_input_type(P),
        TypeError,
        "^<Record ordered=True>: bad input type .* for <Function fn='neg'>",
    ),
    "inner": (
        lambda: td.Map(td.Record((neg(),))).set_input_type(P),
        TypeError,
        "^<Record ordered=True>: bad input type .* for <Function fn='neg'>",
    ),
    "some": (
        lambda: td.Optional(neg()),
        TypeError,
        "^some_case of Optional: bad input type .* for <Function fn='neg'>",
    ),
    "none": (
        lambda: td.Optional(td.Scalar(), td.Scalar()),
        TypeError,
        "^none_case of Optional: Type mismatch between input type VoidType.* in <Scalar",
    ),
    "start": (
        lambda: td.Fold(add(), td.Scalar()),
        TypeError,
        "^start_block of Fold: Type mismatch .*VoidType.* in <Scalar",
    ),
    "default": (
        lambda: td.Reduce(add(), 42),
        TypeError,
        "^default_block of Reduce: 42 cannot be converted to a block",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_error_in_a_part_names_the_whole(name: str) -> None:
    make, kind, text = WHOLE[name]
    with pytest.raises(kind, match=text) as caught:
        make()
    assert isinstance(caught.value, GraphfoldError)


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


def test_endless_values_are_no_output() -> None:
    assert isinstance((td.Scalar() >> td.Broadcast()).eval(1), repeat)
    with pytest.raises(TypeError, match="may not contain sequences"):
        td.compile(td.Scalar() >> td.Broadcast(), ragged=True)
