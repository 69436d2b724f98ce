"""TargetPrediction: what a model says of one target, in the words of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

#: target -> the names of its classes, where they have names.
ClassNames: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class TargetPrediction:
    """One target of one row.

    Args:
        value: the class or the number.
        probabilities: class -> probability, where classes are predicted; there are many of them,
            so heads round them together (see `seven_digits`).
        extra: further numbers by name, as the head's `extra_columns` lists them.
    """

    value: Any
    probabilities: Mapping[Any, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rounds: a float32 has no more than seven digits. An infinite extra number is none."""
        if isinstance(self.value, float):
            object.__setattr__(self, "value", _digits(self.value))
        if self.extra:
            known = {key: _known(_digits(value)) for key, value in self.extra.items()}
            object.__setattr__(self, "extra", known)

    def with_extra(self, more: Mapping[str, Any]) -> TargetPrediction:
        """The same with further numbers; `dataclasses.replace` takes three times as long."""
        return TargetPrediction(self.value, self.probabilities, {**self.extra, **more})


#: For each row, target -> what is said of it.
Predictions: TypeAlias = list[dict[str, TargetPrediction]]


def seven_digits(numbers: Tensor) -> list[Any]:
    """`numbers.tolist()`, rounded: a float32 has no more than seven digits."""
    values = numbers.double().numpy()
    size = np.abs(values)
    # A power of ten up to 10**22 is exact, so a whole number over it is the nearest float64.
    is_usual = (size > 1e-15) & (size < 1e7)
    scale = 10.0 ** (6 - np.floor(np.log10(size, where=is_usual, out=np.zeros_like(size))))
    rounded = np.rint(values * scale) / scale
    is_odd = ~is_usual & (values != 0)
    rounded[is_odd] = [_digits(value) for value in values[is_odd].tolist()]
    return rounded.tolist()  # type: ignore[no-any-return]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _digits(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value
