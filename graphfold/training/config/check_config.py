"""The config is checked whole, before any work: all its faults in one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphfold.errors import ConfigError
from graphfold.options import Rule, rule_faults
from graphfold.training.config.stages import factor_faults, stage_faults

#: The keys that scripts rely on; every other key is checked against the class that it goes to.
RULES: Mapping[str, Rule] = {
    "needs": Rule(list, optional=True),
    "data": Rule(dict, needed=True),
    "model": Rule(dict, needed=True),
    "model._target_": Rule(str, needed=True),
    "optimizer": Rule(dict, needed=True),
    "optimizer._target_": Rule(str, needed=True),
    "lr_scheduler": Rule(dict, optional=True, needed=True),
    "callbacks": Rule(dict, optional=True, needed=True),
    "logger": Rule(dict, optional=True, needed=True),
    "trainer": Rule(dict, needed=True),
    "trainer._target_": Rule(str, needed=True),
    "loss": Rule(dict, needed=True),
    "monitor": Rule(str, optional=True, needed=True),
    "seed": Rule(int, least=0, needed=True),
    "deterministic": Rule(bool, needed=True),
    "ensemble": Rule(int, least=1, most=10_000),
    "dropout_samples": Rule(int, least=2, most=100_000, optional=True),
    "threads": Rule(int, least=1, most=1_024, optional=True),
    "freeze": Rule(list[str], optional=True),
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
    "trainer.max_epochs": Rule(int, least=1, needed=True),
    "trainer.devices": Rule(int, least=1, most=1_024, needed=True),
    "trainer.accumulate_grad_batches": Rule(int, least=1, needed=True),
    "trainer.gradient_clip_val": Rule(float, least=0, optional=True, needed=True),
    "loss.reduction": Rule(str, choices=("per_graph", "per_node"), needed=True),
    "tune.trials": Rule(int, least=1),
    "tune.startup_trials": Rule(int, least=1),
    "tune.prune": Rule(bool),
    "tune.warmup_epochs": Rule(int, least=0),
}


def check_config(config: Mapping[str, Any]) -> None:
    """Raises ConfigError that lists every absent key, and every value that is absent or wrong."""
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
    faults += [*rule_faults(RULES, config), *stage_faults(config), *factor_faults(config)]
    if faults:
        raise ConfigError("\n".join(faults))


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
