"""The keys that scripts rely on have a type, and all faults come together."""

from __future__ import annotations

from typing import Any

import pytest

from graphfold.errors import ConfigError
from graphfold.options import Rule
from graphfold.training.config.check_config import RULES, check_config, flatten
from graphfold.training.config.compose import compose


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """A config without a fault."""
    return compose([]).config


def check(whole: dict[str, Any], changes: dict[str, Any]) -> None:
    """Checks a config with other values, those of sections beside theirs."""
    sections = ("data", "model")
    inner = {key: {**whole[key], **changes[key]} for key in sections if key in changes}
    check_config({**whole, **changes, **inner})


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


@pytest.mark.parametrize("key", ["seed", "trainer", "trainer.devices", "monitor", "ensemble"])
def test_only_the_keys_that_every_run_has_are_needed(key: str, whole: dict[str, Any]) -> None:
    section, _, name = key.rpartition(".")
    lacking = {k: v for k, v in (whole[section] if section else whole).items() if k != name}
    config = {**whole, section: lacking} if section else lacking
    if key == "ensemble":
        check_config(config)
        return
    with pytest.raises(ConfigError, match=f"^there is no key '{key}' in the config.$"):
        check_config(config)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"needs": 2}, "needs is 2, but it must be a list"),
        ({"data": {"max_vocabulary": -1}}, "max_vocabulary is -1, but it must be .* from 1 on"),
        ({"needs": [[]]}, r"\[\] has no value"),
        ({"freeze": 3}, "freeze is 3, but it must be a list of strings or null"),
        ({"freeze": ["a", 3]}, "freeze is .* but it must be a list of strings or null"),
        ({"stages": [{"epochs": 1, "lr": float("nan")}]}, r"stages\[0\].lr is nan"),
        ({"lr_factors": {"encoder": float("inf")}}, "lr_factors is {'encoder': inf}"),
    ],
)
def test_values_of_the_wrong_kind(
    config: dict[str, Any], fault: str, whole: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=fault):
        check(whole, config)


def test_every_fault_is_named(whole: dict[str, Any]) -> None:
    config = {"seed": -1, "data": {"path": "???", "batch_size": "x", "split": "random"}}
    with pytest.raises(ConfigError) as caught:
        check(whole, config)
    lines = caught.value.message.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["data.path", "seed", "data.batch_size"]


def test_rules_are_about_keys_that_exist() -> None:
    known = {
        *dict(flatten(compose([]).config)),
        *dict(flatten(compose(["data=smiles", "data.path=x", "data.target_columns=[a]"]).config)),
        *dict(flatten(compose(["data=qm9"]).config)),
        *dict(flatten(compose(["data=esol", "model=dmpnn"]).config)),
    }
    known |= {f"tune.{key}" for key in ("trials", "startup_trials", "prune", "warmup_epochs")}
    known |= {"model.needs_data", "model.data_defaults"}  # mappings, and so no leaves
    known |= {*compose([]).config, *(key.rpartition(".")[0] for key in known)}
    assert set(RULES) <= known


def test_a_needed_key_without_a_value_is_a_fault(whole: dict[str, Any]) -> None:
    check(whole, {"needs": ["data.vectors"], "data": {"vectors": "v.txt"}})
    with pytest.raises(ConfigError, match=r"data.vectors has no value, which this run needs"):
        check(whole, {"needs": ["data.vectors"], "data": {"vectors": None}})


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
def test_values_that_are_no_leaf_or_no_text_are_told(
    config: dict[str, Any], message: str, whole: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as error:
        check(whole, config)
    assert message in error.value.message
