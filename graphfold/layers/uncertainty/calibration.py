"""Calibration of predictions, on records that the model did not learn from: what, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from torch import Tensor

from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.conformal import SETS, least_records
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


@dataclass(frozen=True)
class CalibrationSettings:
    """The config group `calibration`.

    Args:
        method: "auto": conformal intervals for numbers of whole graphs, nothing for classes;
            "conformal": intervals, whatever has numbers; "temperature" or "isotonic": calibrated
            probabilities; "none".
        level: the probability that an interval or a set holds the true value.
        sets: "lac" or "aps" for sets of classes that may be true; None for no sets.

    Raises:
        ConfigError: if there is no such method, or `level` is no probability.
    """

    method: str = "none"
    level: float = 0.9
    sets: str | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("method", self.method, METHODS),
            ("sets", self.sets, (None, *SETS)),
        ):
            if value not in tuple(choices):  # a value may be a list, which has no hash
                words = ["null" if choice is None else choice for choice in choices]
                raise ConfigError(
                    f"calibration.{name} is {value!r}.{did_you_mean(str(value), words)} Use one of "
                    f"{', '.join(words)}."
                )
        if isinstance(self.level, bool) or not isinstance(self.level, int | float):
            raise ConfigError(f"calibration.level is {self.level!r}. Give a number such as 0.9.")
        if not 0 < self.level < 1:
            raise ConfigError(
                f"calibration.level is {self.level}, but it is a probability between 0 and 1."
            )

    @staticmethod
    def of(config: Mapping[str, Any]) -> CalibrationSettings:
        """Those of the config of a run; without any, nothing is calibrated.

        Raises:
            ConfigError: also if there is another key.
        """
        given = config.get("calibration") or {}
        names = [field.name for field in fields(CalibrationSettings)]
        for name in given if isinstance(given, Mapping) else [given]:
            if name not in names:
                raise ConfigError(
                    f"there is no key calibration.{name}.{did_you_mean(str(name), names)} There "
                    f"are: {', '.join(names)}."
                )
        return CalibrationSettings(**given)


def calibration_of(head: Head, state: Mapping[str, Any]) -> Calibration:
    """The calibration of a checkpoint.

    Args:
        head: the head of the model.
        state: what `Calibration.state` gave.
    """
    return (Intervals if head.task == "regression" else Probabilities)(head, state)


def fit_calibration(
    head: Head, settings: CalibrationSettings, predicted: Predicted, targets: Tensor
) -> Calibration | None:
    """The calibration on some records; None if there is nothing to be done.

    Nor is there if records are too few; `shortage` says so.

    Args:
        head: the head of the model.
        settings: how.
        predicted: what is predicted of records that the model did not learn from.
        targets: their targets.

    Raises:
        ConfigError: if the method, or sets, are not for what the head predicts.
    """
    method, sets = settings.method, settings.sets
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
    least, sizes = least_records(settings.level), _sizes(head, predicted, targets).values()
    if head.task == "regression":
        if max(sizes) < least:
            return None
        return Intervals.fit(head, settings.level, predicted, targets)
    sets = sets if max(sizes) >= least else None
    fitted = method if method in ("temperature", "isotonic") and max(sizes) else None
    if fitted is None and sets is None:
        return None
    return Probabilities.fit(head, settings.level, fitted, sets, predicted, targets)


def shortage(
    head: Head, settings: CalibrationSettings, predicted: Predicted, targets: Tensor
) -> str | None:
    """The intervals or sets that `fit_calibration` could not make for want of records, in words."""
    what = "intervals" if head.task == "regression" else "sets" if settings.sets else None
    if settings.method == "none" or what is None or head.level != "graph":
        return None
    least = least_records(settings.level)
    sizes = _sizes(head, predicted, targets)
    few = [name for name, size in sizes.items() if size < least]
    if not few:
        return None
    return (
        f"no {settings.level:.0%} {what} for {', '.join(few)}: they take {least} measured records "
        f"of the validation part, and there are {min(sizes.values())}. More of them by "
        "data.fractions, or a lower calibration.level, would do."
    )


def _sizes(head: Head, predicted: Predicted, targets: Tensor) -> dict[str, int]:
    """target -> how many measured values it has."""
    inputs = head.metric_inputs(predicted, targets)
    return {name: len(values) for name, (_, values) in inputs.items()}
