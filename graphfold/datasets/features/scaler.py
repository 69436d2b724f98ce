"""Scaler: the mean and spread of a target, so that models learn numbers near zero."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scaler(NamedTuple):
    """A target in units of its standard deviation, counted from its mean."""

    mean: float = 0.0
    std: float = 1.0

    def scale(self, values: Tensor) -> Tensor:
        """Values in the target's unit -> scaled values."""
        return (values - self.mean) / self.std


def fit_scaler(values: Tensor) -> Scaler:
    """The scaler of all measured values of a column; NaN is a missing one.

    The standard deviation is that of the values themselves (no Bessel correction). Values that are
    all equal, or all missing, keep their scale.

    Shape:
        values: [num_rows, *shape]; a column of vectors gets one mean and one deviation.
    """
    measured = values[~values.isnan()].double()
    if not len(measured):
        return Scaler()
    mean = float(measured.mean())
    std = float(measured.std(correction=0))
    # Equal numbers have a mean that is off by a rounding error, and so a tiny deviation.
    is_constant = std <= 1e-12 * max(abs(mean), 1.0)
    return Scaler(mean, 1.0 if is_constant else std)
