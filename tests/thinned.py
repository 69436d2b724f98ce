"""Tests of which `make test` runs a part and `make test-slow` the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import given, settings


def thinned(
    cases: Iterable[Any], kept: Collection[Any], id: Callable[..., str] | None = None
) -> list[Any]:
    """The cases as parameters; those that are not kept are slow.

    Args:
        cases: a value or a tuple of values each.
        kept: the cases that run with every change.
        id: gives the name of a case, from its values.
    """
    cases = list(cases)
    absent = [case for case in kept if case not in cases]
    assert not absent, f"no such cases: {absent}"
    return [_parameter(case, case in kept, id) for case in cases]


def every(
    step: int, cases: Iterable[Any], first: int = 0, id: Callable[..., str] | None = None
) -> list[Any]:
    """The cases as parameters, of which each `step`-th runs with every change.

    Tests of one table of cases begin at different ones, so that together they look at all of it.
    """
    return [_parameter(case, (number - first) % step == 0, id) for number, case in enumerate(cases)]


def random_programs(few: int, many: int, *data: Any, **named: Any) -> Callable[[Any], Any]:
    """Tries a few examples of data, and in a slow test many.

    For programs made at random, each of which takes as long as a hundred of other examples.

    Args:
        few: how many examples.
        many: how many the slow test has.
        *data: strategies of `hypothesis.given`.
        **named: likewise.
    """

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(*data, **named)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def _parameter(case: Any, is_kept: bool, name: Callable[..., str] | None) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    marks = [] if is_kept else [pytest.mark.slow]
    return pytest.param(*values, marks=marks, id=name(*values) if name else None)
