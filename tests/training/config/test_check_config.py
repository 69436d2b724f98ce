"""The keys that scripts rely on have a type, and all faults come together."""

from __future__ import annotations

from typing import Any

import pytest

from graphfold.errors import ConfigError
from graphfold.training.config.check_config import RULES, Rule, check_config, flatten


@pytest.mark.parametrize(
    ("rule", "value", "fault"),
    [
        (Rule(int, least=1), 1, None),
        (Rule(int, least=1), 0, "from 1 on"),
        (Rule(int), True, "whole number"),
        (Rule(int), 1.0, "whole number"),
        (Rule(int), 10**20, "whole number"),
        (Rule(int), None, "whole number"),
        (Rule(int, optional=True), None, None),
        (Rule(int, optional=True), "x", "or null"),
        (Rule(float, least=0), 2, None),
        (Rule(float), "2", "a number"),
        (Rule(float, least=0), float("nan"), "a number"),
        (Rule(float, least=0), float("inf"), "a number"),
        (Rule(list), 2, "a list"),
        (Rule(bool), True, None),
        (Rule(bool), 1, "true or false"),
        (Rule(str, choices=("a", "bcd")), "bcd", None),
        (Rule(str, choices=("a", "bcd")), "bce", "Did you mean 'bcd'?"),
    ],
)
def test_rule(rule: Rule, value: Any, fault: str | None) -> None:
    found = rule.fault(value)
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_a_config_without_a_key_has_no_fault_of_it() -> None:
    check_config({"seed": 1, "data": {"batch_size": 3}})


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"needs": 2}, "needs is 2, but it must be a list"),
        ({"data": {"max_vocabulary": -1}}, "max_vocabulary is -1, but it must be .* from 1 on"),
        ({"needs": [[]]}, r"\[\] has no value"),
        ({"stages": [{"epochs": 1, "lr": float("nan")}]}, r"stages\[0\].lr is nan"),
        ({"lr_factors": {"encoder": float("inf")}}, "lr_factors is {'encoder': inf}"),
    ],
)
def test_values_of_the_wrong_kind(config: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        check_config(config)


def test_every_fault_is_named() -> None:
    config = {"seed": -1, "data": {"path": "???", "batch_size": "x", "split": "random"}}
    with pytest.raises(ConfigError) as caught:
        check_config(config)
    lines = caught.value.message.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["data.path", "seed", "data.batch_size"]


def test_rules_are_about_keys_that_exist() -> None:
    from graphfold.training.config.compose import compose

    known = {
        *dict(flatten(compose([]).config)),
        *dict(flatten(compose(["data=smiles", "data.path=x", "data.target_columns=[a]"]).config)),
        *dict(flatten(compose(["data=qm9"]).config)),
        *dict(flatten(compose(["data=esol", "model=dmpnn"]).config)),
    }
    known |= {f"tune.{key}" for key in ("trials", "startup_trials", "prune", "warmup_epochs")}
    known |= {"model.needs_data", "model.data_defaults"}  # mappings, and so no leaves
    assert set(RULES) <= known


def test_a_needed_key_without_a_value_is_a_fault() -> None:
    check_config({"needs": ["data.vectors"], "data": {"vectors": "v.txt"}})
    with pytest.raises(ConfigError, match=r"data.vectors has no value, which this run needs"):
        check_config({"needs": ["data.vectors"], "data": {"vectors": None}})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data": {"corpus": {"a": 1}}}, "data.corpus is {'a': 1}, but it must be a string"),
        ({"data": {"split": ["a"]}}, "data.split is"),
        ({"model": {"needs_data": ["a"]}}, "model.needs_data is ['a'], but it must be a mapping"),
        ({"data": {"path": "a\0b"}}, "data.path has a zero byte"),
        ({"data": {"target_columns": ["a", "b\0"]}}, "data.target_columns has a zero byte"),
        ({"threads": 10**6}, "threads is 1000000, but it must be 1,024 at most"),
        ({"ensemble": 10**9}, "ensemble is 1000000000, but it must be 10,000 at most"),
    ],
)
def test_values_that_are_no_leaf_or_no_text_are_told(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_config(config)
    assert message in error.value.message
