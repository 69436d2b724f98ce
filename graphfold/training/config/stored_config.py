"""Configs of stored runs: checked, for a file may be damaged, and made to fit this version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfold.errors import CheckpointError, ConfigError
from graphfold.training.config.check_config import RULES, Rule, check_config
from graphfold.training.config.earlier_configs import upgraded

#: Keys that every run has.
NEEDED: Mapping[str, Rule] = {
    "monitor": Rule(str, optional=True),
    "data": Rule(dict),
    "model": Rule(dict),
    "model._target_": Rule(str),
    "optimizer": Rule(dict),
    "optimizer._target_": Rule(str),
    "lr_scheduler": Rule(dict, optional=True),
    "callbacks": Rule(dict, optional=True),
    "logger": Rule(dict, optional=True),
    "trainer": Rule(dict),
    "trainer._target_": Rule(str),
    "loss": Rule(dict),
    **{key: rule for key, rule in RULES.items() if key.startswith(("trainer.", "loss."))},
    **{key: RULES[key] for key in ("seed", "deterministic")},
}


def read_stored_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The config of a stored run, checked, with today's options.

    Args:
        config: what the file holds.
        path: the file, for messages.

    Raises:
        CheckpointError: naming the file, and the key that is absent or has no such value.
    """
    for key, rule in NEEDED.items():
        if fault := rule.fault(value := _find(config, key, path)):
            raise _broken(path, f"{key} is {value!r}, but {fault}")
    try:
        check_config(config)
    except ConfigError as error:
        raise _broken(path, error.message) from error
    return upgraded(config)


def _find(config: Mapping[str, Any], key: str, path: Path) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise _broken(path, f"there is no key '{key}' in the config.")
        node = node[part]
    return node


def _broken(path: Path, fault: str) -> CheckpointError:
    return CheckpointError(f"{path}: {fault} Restore the file, or train again.", path=str(path))
