"""Configs of stored runs: checked, for a file may be damaged, and made to fit this version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from graphfold.errors import CheckpointError, ConfigError
from graphfold.training.config.from_lightning import with_own_loop
from graphfold.training.config.training_config import TrainingConfig

#: So many values may a YAML file have.
MOST_VALUES = 1_000_000

#: Keys that have gone.
GONE = ("products", "product_error")

#: The models whose options are known here.
MODELS = ("graphfold.layers.GraphModel", "graphfold.blocks.BlockModel")


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, of plain values.

    Raises:
        OSError, yaml.YAMLError, ValueError, RecursionError: if it cannot be read. A few lines of
            aliases can stand for more values than any memory holds: that is a ValueError.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    count, rest = 0, [content]
    while rest:
        node = rest.pop()
        if isinstance(node, dict | list):
            count += len(node)
            rest += node.values() if isinstance(node, dict) else node
        if count > MOST_VALUES:
            raise ValueError(f"it stands for more than {MOST_VALUES:,} values")
    return content


def read_stored_config(config: Mapping[str, Any], path: Path) -> TrainingConfig:
    """The config of a stored run, with today's options.

    Args:
        config: what the file holds.
        path: the file, for messages.

    Raises:
        CheckpointError: naming the file, and the key that is absent or has no such value.
    """
    try:
        return TrainingConfig.of(upgraded(config))
    except ConfigError as error:
        raise CheckpointError(
            f"{path}: {error.message} Restore the file, or train again.", path=str(path)
        ) from error


def upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a stored run with what its options are called, and mean, today.

    `data.cache_dir` is that of the machine, or of the user, where the run is applied: a run that
    comes from elsewhere must not choose where files are written.

    `data.collapsed_label` is new: until then a chain of single children had the label of its top.

    `products`, `product_error` and `model.recompute` have gone. `model.fuse: true` once was written
    into every run whose machine had a C compiler; today it is a demand on the machine where a run
    begins. So where a run is gone on with or applied, cells are compiled if that can be, and a
    warning says so if not.
    """
    config = with_own_loop({k: value for k, value in config.items() if k not in GONE})
    if isinstance(config.get("data"), Mapping):
        config["data"] = {**config["data"], "cache_dir": None}
        if config["data"].get("collapse_unary"):
            config["data"].setdefault("collapsed_label", "top")
    model = config.get("model")
    if not isinstance(model, Mapping) or model.get("_target_") not in MODELS:
        return config
    model = {name: value for name, value in model.items() if name != "recompute"}
    if model.get("fuse"):
        model["fuse"] = None
    return {**config, "model": model}
