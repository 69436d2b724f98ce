"""Values of a config against type hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from graphfold.options import describe, fits, option_faults, parameters

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int),
        (1, float),
        (True, bool),
        ("a", str),
        (None, int | None),
        (["a"], list[str]),
        (("a", "b"), Sequence[str]),
        ([], Sequence[str]),
        ("a", Sequence[str] | str),
        ({"a": 1}, Mapping[str, int]),
        ("x", Literal["x", "y"]),
        ("/tmp", Path),
        (object(), Any),
    ],
)
def test_fitting_values(value: object, hint: object) -> None:
    assert fits(value, hint)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "a whole number"),
        (1.0, int, "a whole number"),
        (10**20, int, "a whole number"),
        (float("nan"), float, "a number"),
        (float("-inf"), float | None, "a number or null"),
        ("1", float, "a number"),
        (1, bool, "true or false"),
        (1, str, "a string"),
        (None, str, "a string"),
        ("a", list[str], "a list of strings"),
        ([1], Sequence[str], "a list of strings"),
        ("a", list[list[str]], "a list"),
        ([1], Mapping[str, int], "a mapping"),
        ("z", Literal["x", "y"], "one of x, y"),
        ("z", int | None, "a whole number or null"),
        (3, Path, "Path"),
    ],
)
def test_values_that_do_not_fit(value: object, hint: object, words: str) -> None:
    assert not fits(value, hint)
    assert describe(hint) == words


def test_an_option_without_default_is_needed() -> None:
    def call(size: int, *rest: int, name: str = "", **more: int) -> None: ...

    assert list(parameters(call)) == ["size", "name"]
    assert option_faults("it", call, {}) == ["it needs the option 'size'. Set it."]
    assert option_faults("it", call, {"size": 1}) == []


def test_hints_that_only_a_type_checker_sees_fit_anything() -> None:
    def call(price: Decimal) -> None: ...

    assert option_faults("it", call, {"price": "x"}) == []
