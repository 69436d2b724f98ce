"""Targets of a head: columns of the schema, and their weights in the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphfold.dag import Column, Schema
from graphfold.errors import ConfigError, did_you_mean


def find_targets(schema: Schema, level: str, names: Sequence[str] | None) -> tuple[Column, ...]:
    """The target columns of a level with some names; None for all of them.

    Raises:
        ConfigError: if the level has no targets, or lacks some of the names; it lists these.
    """
    here, elsewhere = schema.graph_targets, schema.node_targets
    if level != "graph":
        here, elsewhere = elsewhere, here
    columns = {column.name: column for column in here}
    names = list(columns) if names is None else list(names)
    if not names:
        raise ConfigError(
            f"there is no target for one row per {level}: the schema has "
            f"{_listed(schema.graph_targets)} for graphs and {_listed(schema.node_targets)} for "
            "nodes. Choose a readout of the level that has targets: for nodes "
            "model.readout._target_=graphfold.layers.OutputReadout, for bonds of molecules "
            "BondReadout, for graphs MeanReadout."
        )
    others = {column.name for column in elsewhere}
    faults = [_unknown(name, level, columns, others) for name in names if name not in columns]
    if faults:
        raise ConfigError(" ".join(faults))
    return tuple(columns[name] for name in names)


def as_numbers(values: Tensor, column: Column) -> Tensor:
    """A target as floats, NaN where it is missing."""
    if values.is_floating_point():
        return values
    missing = values < 0 if column.missing == -1 else torch.zeros_like(values, dtype=torch.bool)
    return values.to(torch.get_default_dtype()).masked_fill(missing, float("nan"))


def weights_of(weights: Mapping[str, float] | None, names: Sequence[str]) -> list[float]:
    """The weights of some targets; 1 for a target without one.

    Raises:
        ConfigError: if a name is unknown, or a weight is no number from 0 on.
    """
    weights = weights or {}
    for name, weight in weights.items():
        if name not in names:
            raise ConfigError(
                f"target_weights names '{name}', which is no target.{did_you_mean(name, names)} "
                f"The targets are: {', '.join(names)}."
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
            raise ConfigError(f"target_weights gives '{name}' {weight!r}. Give a number from 0 on.")
    numbers = [float(weights.get(name, 1.0)) for name in names]
    if not any(numbers):
        raise ConfigError("target_weights gives every target 0. Give one of them a weight above 0.")
    return numbers


def class_weights_of(weights: object, num_classes: int, target: str) -> list[float]:
    """The weights of the classes of a target; with None, 1 for each class.

    Args:
        weights: a list of numbers, or target name -> list.
        num_classes: the number of classes.
        target: the name of the target.

    Raises:
        ConfigError: if there is not one number from 0 on for each class.
    """
    values = weights.get(target) if isinstance(weights, Mapping) else weights
    if values is None:
        return [1.0] * num_classes
    numbers = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else []
    fits = all(isinstance(w, int | float) and w >= 0 for w in numbers) and any(numbers)
    if len(numbers) != num_classes or not fits:
        raise ConfigError(
            f"class_weights gives '{target}' {values!r}. Give {num_classes} numbers from 0 on, "
            "one for each class in order, or 'balanced'."
        )
    return [float(weight) for weight in numbers]


def _unknown(name: str, level: str, columns: dict[str, Column], others: set[str]) -> str:
    if name in others:
        kind, remedy = ("nodes", "NodeReadout or OutputReadout")
        if level != "graph":
            kind, remedy = ("whole graphs", "a readout with one row per graph")
        return f"'{name}' is a target of {kind}, but a row stands for one {level}. Use {remedy}."
    return (
        f"the schema has no target '{name}' for a {level}.{did_you_mean(name, columns)} "
        f"It has: {', '.join(columns) or 'none'}."
    )


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(f"'{column.name}'" for column in columns) or "none"
