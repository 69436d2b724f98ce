"""The config is checked whole, before any work: all its faults in one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphfold.errors import ConfigError, did_you_mean
from graphfold.options import is_number
from graphfold.training.config.stages import factor_faults, stage_faults


@dataclass(frozen=True)
class Rule:
    """The values that one key may have.

    Args:
        kind: int, float, bool, str, list or dict.
        least: the smallest number.
        most: the largest number.
        choices: the only strings.
        optional: whether null is allowed.
    """

    kind: type
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    def fault(self, value: Any) -> str | None:
        """The fault of `value`, or None."""
        if value is None and self.optional:
            return None
        if self.choices and value not in self.choices:
            hint = did_you_mean(str(value), self.choices)
            return f"it is one of {', '.join(self.choices)}.{hint}"
        is_kind = isinstance(value, (int, float) if self.kind is float else self.kind)
        if not is_kind or (self.kind in (int, float) and not is_number(value)):
            return f"it must be {self}."
        if self.least is not None and isinstance(value, int | float) and value < self.least:
            return f"it must be {self}."
        if self.most is not None and isinstance(value, int | float) and value > self.most:
            return f"it must be {self.most:,g} at most."
        return None

    def __str__(self) -> str:
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        names |= {str: "a string", dict: "a mapping", list: "a list"}
        least = "" if self.least is None else f" from {self.least:g} on"
        return names[self.kind] + least + (" or null" if self.optional else "")


#: The keys that scripts rely on; every other key is checked against the class that it goes to.
RULES: Mapping[str, Rule] = {
    "needs": Rule(list, optional=True),
    "seed": Rule(int, least=0),
    "deterministic": Rule(bool),
    "ensemble": Rule(int, least=1, most=10_000),
    "dropout_samples": Rule(int, least=2, most=100_000, optional=True),
    "threads": Rule(int, least=1, most=1_024, optional=True),
    "resume": Rule(str, optional=True),
    "init_from": Rule(str, optional=True),
    "model.encoder_from": Rule(str, optional=True),
    "model.needs_data": Rule(dict, optional=True),
    "model.data_defaults": Rule(dict, optional=True),
    "data.corpus": Rule(str, optional=True),
    "data.adapter": Rule(str, optional=True),
    "data.root": Rule(str, optional=True),
    "data.cache_dir": Rule(str, optional=True),
    "data.on_error": Rule(str, choices=("raise", "skip")),
    "data.batch_size": Rule(int, least=1),
    "data.max_nodes": Rule(int, least=1, optional=True),
    "data.num_workers": Rule(int, least=0, most=1_024, optional=True),
    "data.split": Rule(str, optional=True),
    "data.policy": Rule(str),
    "data.min_count": Rule(int, least=1),
    "data.max_vocabulary": Rule(int, least=1, optional=True),
    "data.seed": Rule(int, least=0),
    "data.task": Rule(str, choices=("regression", "classification"), optional=True),
    "trainer.max_epochs": Rule(int, least=1),
    "trainer.devices": Rule(int, least=1, most=1_024),
    "trainer.accumulate_grad_batches": Rule(int, least=1),
    "trainer.gradient_clip_val": Rule(float, least=0, optional=True),
    "loss.reduction": Rule(str, choices=("per_graph", "per_node")),
    "tune.trials": Rule(int, least=1),
    "tune.startup_trials": Rule(int, least=1),
    "tune.prune": Rule(bool),
    "tune.warmup_epochs": Rule(int, least=0),
}


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


def check_whole(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first needed key that is absent or has a value of another kind."""
    for key, rule in NEEDED.items():
        value: Any = config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise ConfigError(f"there is no key '{key}' in the config.")
            value = value[part]
        if value != "???" and (fault := rule.fault(value)):
            raise ConfigError(f"{key} is {value!r}, but {fault}")


def check_config(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that lists every missing value and every value of the wrong kind."""
    values = dict(flatten(config))
    needs = config.get("needs")
    faults = [
        f"{key} has a zero byte, which no text has. Correct it."
        for key, value in values.items()
        if any("\0" in text for text in _texts(value))
    ]
    faults += [
        f"{key} has no value. Add {key}=VALUE." for key, value in values.items() if value == "???"
    ]
    faults += [
        f"{key} has no value, which this run needs. Add {key}=VALUE."
        for key in (needs if isinstance(needs, list) else ())
        if values.get(str(key)) is None
    ]
    for key, rule in RULES.items():
        value = _at(config, key)
        if value != "???" and (fault := rule.fault(value)):
            faults.append(f"{key} is {value!r}, but {fault}")
    faults += [*stage_faults(config), *factor_faults(config)]
    if faults:
        raise ConfigError("\n".join(faults))


def _at(node: Any, key: str) -> Any:
    """The value at a dotted key, a mapping or not; "???" if there is none."""
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return "???"
        node = node[part]
    return node


def _texts(value: Any) -> Iterator[str]:
    """The strings of a value, or of a list of values."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item


def flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf of a nested config."""
    if not isinstance(node, Mapping):
        yield prefix, node
        return
    for key, value in node.items():
        yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))
