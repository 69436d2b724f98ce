"""TargetPrediction: what a model says of one target, in the words of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: target -> the names of its classes, where they have names.
ClassNames: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class TargetPrediction:
    """One target of one row.

    Args:
        value: the class or the number.
        probabilities: class -> probability, where classes are predicted.
        extra: further numbers by name, as the head's `extra_columns` lists them.
    """

    value: Any
    probabilities: Mapping[Any, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rounds: a float32 has no more than seven digits. An infinite extra number is none."""
        object.__setattr__(self, "value", _digits(self.value))
        for name in ("probabilities", "extra"):
            rounded = {key: _digits(value) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, rounded)
        known = {k: None if _is_infinite(value) else value for k, value in self.extra.items()}
        object.__setattr__(self, "extra", known)


#: For each row, target -> what is said of it.
Predictions: TypeAlias = list[dict[str, TargetPrediction]]


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _digits(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value
