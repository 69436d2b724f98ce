"""Metrics of sets of classes that may be true."""

from __future__ import annotations

from torch import Tensor

from graphfold.metrics.base import metric


@metric(task="sets")
def set_coverage(sets: Tensor, target: Tensor) -> Tensor:
    """Share of the rows whose true class is in its set."""
    return sets.gather(1, target.unsqueeze(1)).double().mean()


@metric(task="sets", higher_is_better=False)
def set_size(sets: Tensor, target: Tensor) -> Tensor:
    """Mean number of classes in a set."""
    return sets.sum(1).double().mean()
