"""Calibration of predictions on records that the model did not learn from: the methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor

from graphfold.errors import ConfigError, some_of
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.intervals import Intervals, least_records
from graphfold.layers.uncertainty.temperature import Temperatures

#: A function from predictions to predictions that was fitted to held-out records.
Calibration: TypeAlias = Intervals | Temperatures

#: A value of `calibration.method` -> the tasks of the heads that it is for.
METHODS: Mapping[str, tuple[str, ...]] = {
    "auto": ("regression", "binary", "multiclass"),
    "none": (),
    "conformal": ("regression",),
    "temperature": ("binary", "multiclass"),
}


def calibration_of(head: Head, state: Mapping[str, Any]) -> Calibration:
    """Restores the calibration of a checkpoint.

    Args:
        head: the head of the model.
        state: the result of `Calibration.state`.
    """
    return (Intervals if head.task == "regression" else Temperatures)(head, state)


def makes_intervals(head: Head, method: str) -> bool:
    """True if a method computes intervals for a head; `auto` does for targets of graphs."""
    is_chosen = method == "conformal" or (method == "auto" and head.level == "graph")
    return is_chosen and head.task == "regression"


def fit_calibration(
    head: Head, method: str, level: float, predicted: Predicted, targets: Tensor
) -> Calibration | None:
    """Fits a calibration; None if the method has none for the head, or records are too few.

    Args:
        head: the head of the model.
        method: a key of `METHODS`.
        level: the probability that an interval contains the true value.
        predicted: predictions for records that the model did not learn from.
        targets: their targets.

    Raises:
        ConfigError: if the method is not for the task of the head.
    """
    if method not in ("auto", "none") and head.task not in METHODS[method]:
        raise ConfigError(
            f"calibration.method={method} is not for {head.task} predictions. Choose another "
            "method, or set calibration.method=none."
        )
    most = max(_sizes(head, predicted, targets).values())
    if makes_intervals(head, method) and most >= least_records(level):
        return Intervals.fit(head, level, predicted, targets)
    if method == "temperature" and most:
        return Temperatures.fit(head, predicted, targets)
    return None


def shortage(
    head: Head, method: str, level: float, predicted: Predicted, targets: Tensor
) -> str | None:
    """A message about targets with too few records for intervals; None if all have enough."""
    if not makes_intervals(head, method) or head.level != "graph":
        return None
    least = least_records(level)
    sizes = _sizes(head, predicted, targets)
    few = [name for name, size in sizes.items() if size < least]
    if not few:
        return None
    return (
        f"no {level:.0%} intervals for {some_of(few)}: they take {least} measured records "
        f"of the validation part, and there are {min(sizes.values())}. More of them by "
        "data.fractions, or a lower calibration.level, would do."
    )


def _sizes(head: Head, predicted: Predicted, targets: Tensor) -> dict[str, int]:
    """Target -> the number of its measured values."""
    inputs = head.metric_inputs(predicted, targets)
    return {name: len(values) for name, (_, values) in inputs.items()}
