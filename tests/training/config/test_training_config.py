"""The keys that scripts rely on have a type, and all faults come together."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest

from graphfold.datasets.settings import DataSettings
from graphfold.errors import ConfigError
from graphfold.layers.uncertainty.calibration import METHODS
from graphfold.training.config.compose import compose
from graphfold.training.config.training_config import CalibrationSettings, TrainingConfig


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """A config without a fault."""
    return dict(compose([]).config.mapping)


def check(whole: dict[str, Any], changes: dict[str, Any]) -> None:
    """Checks a config with other values, those of sections beside theirs."""
    sections = ("data", "model")
    inner = {key: {**whole[key], **changes[key]} for key in sections if key in changes}
    TrainingConfig.of({**whole, **changes, **inner})


@pytest.mark.parametrize(
    "key", ["seed", "trainer", "trainer.devices", "loss.reduction", "model._target_", "monitor"]
)
def test_keys_that_every_run_has_are_needed(key: str, whole: dict[str, Any]) -> None:
    section, _, name = key.rpartition(".")
    lacking = {k: v for k, v in (whole[section] if section else whole).items() if k != name}
    config = {**whole, section: lacking} if section else lacking
    with pytest.raises(ConfigError, match=f"^there is no key '{key}' in the config.$"):
        TrainingConfig.of(config)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"needs": 2}, "needs is 2, but it must be a list"),
        ({"data": {"max_vocabulary": -1}}, "max_vocabulary is -1, but it must be .* from 1 on"),
        ({"needs": [[]]}, r"\[\] has no value"),
        ({"freeze": 3}, "freeze is 3, but it must be a list of strings or null"),
        ({"callbacks": {"x": {}}}, r"callbacks\.x is {}, but it is a class .* Set its _target_"),
        ({"callbacks": {"x": 3}}, r"callbacks\.x is 3, but it is a class with its options"),
        ({"logger": {"x": "y"}}, r"logger\.x is 'y', but it is a class .* Write logger=x"),
        ({"freeze": ["a", 3]}, "freeze is .* but it must be a list of strings or null"),
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


def test_keys_are_those_of_the_config_files() -> None:
    known = {field.name for field in fields(TrainingConfig)} - {"mapping"}
    assert known == set(compose([]).config.mapping)


def test_null_and_absent_keys_have_defaults(whole: dict[str, Any]) -> None:
    newer = ("ensemble", "calibration", "freeze")
    newer += ("threads", "metrics", "resume", "init_from", "needs", "name")
    config = TrainingConfig.of({k: v for k, v in whole.items() if k not in newer})
    assert (config.ensemble, config.threads, config.metrics, config.name) == (1, None, None, "run")
    assert config.calibration == CalibrationSettings("none", 0.9)
    assert TrainingConfig.of({**whole, "calibration": None}).calibration.method == "none"


def test_a_changed_config_has_the_other_values(whole: dict[str, Any]) -> None:
    config = TrainingConfig.of(whole)
    other = config.changed({"seed": 7, "trainer.max_epochs": 3, "data.path": "f"})
    assert (other.seed, other.trainer.max_epochs, other.data["path"]) == (7, 3, "f")
    assert (config.mapping, other.trainer.devices) == (whole, config.trainer.devices)
    assert TrainingConfig.of(other.mapping) == other


def test_what_is_calibrated_is_known_to_the_heads() -> None:
    assert set(get_args(get_type_hints(CalibrationSettings)["method"])) == set(METHODS)


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
        (
            {"threads": 10**6},
            "threads is 1000000, but it must be a whole number from 1 to 1,024",
        ),
        (
            {"ensemble": 10**9},
            "ensemble is 1000000000, but it must be a whole number from",
        ),
    ],
)
def test_values_out_of_range_and_sections_are_named(
    config: dict[str, Any], message: str, whole: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as error:
        check(whole, config)
    assert message in error.value.message


def test_a_setting_without_a_value_is_refused_by_whoever_reads_it() -> None:
    with pytest.raises(ConfigError, match=r"^data.batch_size has no value. Add data.batch_size="):
        DataSettings.of({"batch_size": "???"})
