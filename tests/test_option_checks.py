"""Values of a config against type hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import pytest

from graphfold.errors import ConfigError
from graphfold.options import (
    From0,
    From1,
    Limits,
    describe,
    fits,
    option_faults,
    parameters,
    read_section,
)

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
        (1, From1),
        (0.5, Annotated[float, Limits(above=0, below=1)]),
        (2, Annotated[float, Limits(least=0)] | None),
        ("bcd", Annotated[str, Limits(choices=("a", "bcd"))]),
        (object(), Any),
    ],
)
def test_fitting_values(value, hint):
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
        (0, From1, "a whole number from 1 on"),
        (-1, From0 | None, "a whole number from 0 on or null"),
        (True, From0, "a whole number from 0 on"),
        (2_000, Annotated[int, Limits(least=1, most=1_024)], "a whole number from 1 to 1,024"),
        (1.0, Annotated[float, Limits(above=0, below=1)], "a number above 0 and below 1"),
        (float("nan"), Annotated[float, Limits(least=0)], "a number from 0 on"),
        (1, Literal["auto"] | bool, "one of auto or true or false"),
    ],
)
def test_values_that_do_not_fit(value, hint, words):
    assert not fits(value, hint)
    assert describe(hint) == words


def test_an_option_without_default_is_needed():
    def call(size: int, *rest: int, name: str = "", **more: int) -> None: ...

    assert list(parameters(call)) == ["size", "name"]
    assert option_faults("it", call, {}) == ["it needs the option 'size'. Set it."]
    assert option_faults("it", call, {"size": 1}) == []


def test_hints_that_only_a_type_checker_sees_fit_anything():
    def call(price: Decimal) -> None: ...

    assert option_faults("it", call, {"price": "x"}) == []


class Node(TypedDict):
    target: str


@dataclass(frozen=True)
class Step:
    count: From1
    way: Literal["fast", "slow"] | None = None


@dataclass(frozen=True)
class Plan:
    node: Node
    step: Step = Step(1)
    further: Sequence[Step] | None = None


def test_sections_become_objects_and_null_is_their_default():
    given = {"node": {"target": "x", "more": 1}, "step": None, "further": [{"count": 2}]}
    assert read_section(Plan, given) == Plan({"target": "x", "more": 1}, Step(1), (Step(2),))  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "there is no key 'plan.node' in the config."),
        ({"node": {}}, "there is no key 'plan.node.target' in the config."),
        ({"node": {"target": 1}}, "plan.node.target is 1, but it must be a string."),
        ({"node": []}, "plan.node is [], but it must be a mapping."),
        ({"step": 3}, "plan.step is 3, but it must be a mapping."),
        (
            {"step": {"cuont": 3}},
            "plan.step has no option 'cuont'. Did you mean 'count'?",
        ),
        ({"step": {"count": 0}}, "plan.step.count is 0, but it must be a whole number from 1 on."),
        (
            {"step": {"count": 1, "way": "fats"}},
            "it is one of fast, slow, null. Did you m",
        ),
        ({"further": 3}, "plan.further is 3, but it must be a list or null."),
        ({"further": [{"count": 1}, 3]}, "plan.further[1] is 3, but it must be a mapping."),
    ],
)
def test_faults_of_sections_name_their_place(values, message):
    whole = {"node": {"target": "x"}, **values} if values else values
    with pytest.raises(ConfigError) as caught:
        read_section(Plan, whole, "plan")
    assert message in caught.value.message
