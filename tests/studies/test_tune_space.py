"""Search spaces, from files and from sweeps among the overrides."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.types import Override

from graphfold.errors import ConfigError
from graphfold.studies.tune_space import Dimension, read_space, space_of_sweeps
from graphfold.training.config.overrides import parse_overrides


def parsed(*words: str) -> list[Override]:
    return parse_overrides(words)


def test_spaces_are_nested_or_dotted() -> None:
    nested = {"model": {"hidden_size": [100, 300]}, "optimizer": {"lr": {"low": 1e-4, "high": 0.1}}}
    dotted = {"model.hidden_size": [100, 300], "optimizer.lr": {"low": 1e-4, "high": 0.1}}
    assert read_space(nested) == read_space(dotted)
    assert [d.key for d in read_space(nested)] == ["model.hidden_size", "optimizer.lr"]
    without = {"model": {"hidden_size": None}, "a": [1, 2]}
    assert [d.key for d in read_space(without)] == ["a"]


def test_sweeps_are_a_space() -> None:
    words = ["model=gcn,dmpnn", "a.b=range(1,4)", "x=interval(0.5,2)", "y='a b',c"]
    space = space_of_sweeps(parsed(*words, "lr=tag(log,interval(1e-4,1e-2))"))
    assert space["model"] == ["gcn", "dmpnn"]
    assert space["a.b"] == [1, 2, 3]
    assert space["x"] == {"low": 0.5, "high": 2.0, "log": False}
    assert space["y"] == ["a b", "c"]
    assert space["lr"] == {"low": 1e-4, "high": 1e-2, "log": True}
    with pytest.raises(ConfigError, match=r"'a=glob\(x\*\)' cannot be searched\. Write a=a,b,c or"):
        space_of_sweeps(parsed("a=glob(x*)"))


def test_ranges_keep_their_fractions_and_have_an_end() -> None:
    space = space_of_sweeps(parsed("a=range(0.1,0.5,0.2)", "b=range(4,1,-2)"))
    assert space == {"a": pytest.approx([0.1, 0.3]), "b": [4, 2]}
    for text in ("range(1,9,0)", "range(5,1)", "range(0,1e9)", "range(0.1,0.5,0.0)"):
        with pytest.raises(ConfigError, match="a range without numbers, or with more than 1000"):
            space_of_sweeps(parsed(f"a={text}"))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, r"tune\.space is empty, so there is nothing to search"),
        ([1], r"tune\.space is \[1\], but it maps keys"),
        ({"lr": 0.1}, r"lr is 0\.1\. Give a list of values, or {low: NUMBER"),
        ({"lr": {"low": 1, "hihg": 2}}, r"lr has no 'hihg'\. Did you mean 'high'"),
        ({"lr": {"low": 1}}, r"lr is {'low': 1}\. Give a list"),
        ({"lr": {"low": 2, "high": 1}}, r"low of lr is 2 and high 1\. Let low be less"),
        ({"lr": {"low": 0, "high": 1, "log": True}}, r"logarithmic scale, so low is above 0"),
        ({"lr": {"low": 0, "high": 1, "step": 3}}, r"step of lr is 3\. Let it fit"),
        ({"lr": {"low": 0, "high": 1, "log": "yes"}}, r"log of lr is 'yes'\. It is true or false"),
        ({"a": []}, r"a is \[\]\. Give a list"),
        ({"a": [1, 1]}, r"a names a value twice"),
        ({"a": [1, True]}, r"a names a value twice"),
        ({"lr": {"low": 1, "high": math.inf}}, r"lr is {'low': 1, 'high': inf}\. Give a list"),
        ({"monitor": ["val/mae"]}, r"'monitor' cannot be searched"),
    ],
)
def test_spaces_that_cannot_be(space: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_space(space)


def test_all_faults_are_told_together() -> None:
    with pytest.raises(ConfigError, match=r"a is 1(.|\n)*b is 2"):
        read_space({"a": 1, "b": 2})


def test_suggestions_lie_in_the_space() -> None:
    space = [
        *read_space(
            {"n": {"low": 2, "high": 10, "step": 4}, "m": {"low": 1, "high": 64, "log": True}}
        ),
        *read_space({"x": {"low": 0.0, "high": 0.4, "step": 0.1}, "c": [[1, 2], None, "g h"]}),
    ]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen: dict[str, set[str]] = {d.key: set() for d in space}
    for _ in range(60):
        trial = study.ask()
        for dimension in space:
            key, _, text = dimension.suggest(trial).partition("=")
            seen[key].add(text)
    assert seen["n"] == {"2", "6", "10"}
    assert {int(text) for text in seen["m"]} <= set(range(1, 65))
    assert {round(float(text), 6) for text in seen["x"]} == {0.0, 0.1, 0.2, 0.3, 0.4}
    assert seen["c"] == {"[1,2]", "null", "'g h'"}
    assert space[3].extremes() == ["c=[1,2]", "c=null", "c='g h'"]
    assert Dimension("lr", low=1e-5, high=2.0).extremes() == ["lr=1e-05", "lr=2.0"]
