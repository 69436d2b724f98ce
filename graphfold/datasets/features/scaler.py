"""Scaler: the mean, spread and range of a target, so that models learn numbers near zero."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scaler(NamedTuple):
    """A target in units of its standard deviation, counted from its mean.

    Args:
        mean: of the values.
        std: of the values.
        log_mean: of the natural logarithms of the values above zero.
        log_std: of these logarithms.
        least: the smallest of the values.
        most: the largest; no larger than the smallest if there are none.
    """

    mean: float = 0.0
    std: float = 1.0
    log_mean: float = 0.0
    log_std: float = 1.0
    least: float = 0.0
    most: float = 0.0

    def scale(self, values: Tensor) -> Tensor:
        """Values in the target's unit -> scaled values."""
        return (values - self.mean) / self.std


def fit_scaler(values: Tensor, weights: Tensor | None = None) -> Scaler:
    """The scaler of all measured values of a column; NaN is a missing one.

    The standard deviation is that of the values themselves (no Bessel correction). Values that are
    all equal, or all missing, keep their scale. A value of weight 2 counts like two, one of weight
    0 does not count.

    Shape:
        values: [num_rows, *shape]; a column of vectors gets one mean and one deviation.
        weights: [num_rows] from 0 on; None for 1
    """
    counts = ~values.isnan()
    weights = None if weights is None or bool((weights == 1).all()) else _like(weights, values)
    if weights is not None:
        counts &= weights > 0
        weights = weights[counts].double()
    measured = values[counts].double()
    is_positive = measured > 0
    logarithms = measured[is_positive].log()
    spreads = (
        *_mean_and_std(measured, weights),
        *_mean_and_std(logarithms, None if weights is None else weights[is_positive]),
    )
    if not len(measured):
        return Scaler(*spreads)
    return Scaler(*spreads, float(measured.min()), float(measured.max()))


def _like(weights: Tensor, values: Tensor) -> Tensor:
    """The weight of its row for every entry of `values`."""
    return weights.view(-1, *[1] * (values.dim() - 1)).expand_as(values)


def _mean_and_std(values: Tensor, weights: Tensor | None) -> tuple[float, float]:
    if not len(values):
        return 0.0, 1.0
    if weights is None:
        mean, std = float(values.mean()), float(values.std(correction=0))
    else:
        share = weights / weights.sum()
        mean = float(share @ values)
        std = float((share @ (values - mean).square()).sqrt())
    # Equal numbers have a mean that is off by a rounding error, and so a tiny deviation.
    is_constant = std <= 1e-12 * max(abs(mean), 1.0)
    return mean, 1.0 if is_constant else std
