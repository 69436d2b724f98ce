"""Metrics of intervals around numbers; targets with a bound instead of a value do not count."""

from __future__ import annotations

from torch import Tensor

from graphfold.metrics.base import metric


@metric(task="interval")
def interval_coverage(interval: Tensor, target: Tensor) -> Tensor:
    """Share of the targets that lie within their interval."""
    return is_inside(interval, target).double().mean()


@metric(task="interval", higher_is_better=False)
def interval_width(interval: Tensor, target: Tensor) -> Tensor:
    """Mean width of the intervals, in the target's unit."""
    return (interval[:, 1].double() - interval[:, 0].double()).mean()


def is_inside(interval: Tensor, target: Tensor) -> Tensor:
    """[num_rows] bool, whether a target lies within its interval [num_rows, 2]."""
    return (interval[:, 0] <= target) & (target <= interval[:, 1])
