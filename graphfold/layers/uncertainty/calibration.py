"""Calibration of predictions, on records that the model did not learn from: what, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor

from graphfold.errors import ConfigError, some_of
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.conformal import least_records
from graphfold.layers.uncertainty.intervals import Intervals
from graphfold.layers.uncertainty.probabilities import Probabilities

#: A function from predictions to predictions that was fitted to held-out records.
Calibration: TypeAlias = Intervals | Probabilities

#: What `calibration.method` may name -> the tasks of heads that it is for.
METHODS: Mapping[str, tuple[str, ...]] = {
    "auto": ("regression", "binary", "multiclass"),
    "none": (),
    "conformal": ("regression",),
    "temperature": ("binary", "multiclass"),
    "isotonic": ("binary", "multiclass"),
}


def calibration_of(head: Head, state: Mapping[str, Any]) -> Calibration:
    """The calibration of a checkpoint.

    Args:
        head: the head of the model.
        state: what `Calibration.state` gave.
    """
    return (Intervals if head.task == "regression" else Probabilities)(head, state)


def fit_calibration(
    head: Head, method: str, level: float, sets: str | None, predicted: Predicted, targets: Tensor
) -> Calibration | None:
    """The calibration on some records; None if there is nothing to be done.

    Nor is there if records are too few; `shortage` says so.

    Args:
        head: the head of the model.
        method: a key of `METHODS`.
        level: the probability that an interval or a set is to hold the true value.
        sets: "lac" or "aps" for sets of classes that may be true; None for no sets.
        predicted: what is predicted of records that the model did not learn from.
        targets: their targets.

    Raises:
        ConfigError: if the method, or sets, are not for what the head predicts.
    """
    if method == "none":
        return None
    is_fit = head.task in METHODS[method] and not (sets and head.task == "regression")
    if method == "auto" and not sets and (not is_fit or head.level != "graph"):
        return None
    if not is_fit:
        what = f"calibration.method={method}" + (f" with calibration.sets={sets}" if sets else "")
        raise ConfigError(
            f"{what} is not for {head.task} predictions. Choose another method, or set "
            "calibration.method=none."
        )
    least, sizes = least_records(level), _sizes(head, predicted, targets).values()
    if head.task == "regression":
        if max(sizes) < least:
            return None
        return Intervals.fit(head, level, predicted, targets)
    sets = sets if max(sizes) >= least else None
    fitted = method if method in ("temperature", "isotonic") and max(sizes) else None
    if fitted is None and sets is None:
        return None
    return Probabilities.fit(head, level, fitted, sets, predicted, targets)


def shortage(
    head: Head, method: str, level: float, sets: str | None, predicted: Predicted, targets: Tensor
) -> str | None:
    """The intervals or sets that `fit_calibration` could not make for want of records, in words."""
    what = "intervals" if head.task == "regression" else "sets" if sets else None
    if method == "none" or what is None or head.level != "graph":
        return None
    least = least_records(level)
    sizes = _sizes(head, predicted, targets)
    few = [name for name, size in sizes.items() if size < least]
    if not few:
        return None
    return (
        f"no {level:.0%} {what} for {some_of(few)}: they take {least} measured records "
        f"of the validation part, and there are {min(sizes.values())}. More of them by "
        "data.fractions, or a lower calibration.level, would do."
    )


def _sizes(head: Head, predicted: Predicted, targets: Tensor) -> dict[str, int]:
    """target -> how many measured values it has."""
    inputs = head.metric_inputs(predicted, targets)
    return {name: len(values) for name, (_, values) in inputs.items()}
