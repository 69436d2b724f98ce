"""Metrics of numbers: errors in the target's own unit, and correlations."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.metrics.base import metric


@metric(task="regression", higher_is_better=False)
def rmse(predicted: Tensor, target: Tensor) -> Tensor:
    """Root of the mean squared error."""
    return _error(predicted, target).square().mean().sqrt()


@metric(task="regression", higher_is_better=False)
def mae(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean absolute error."""
    return _error(predicted, target).abs().mean()


@metric(task="regression", higher_is_better=False)
def mse(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return _error(predicted, target).square().mean()


@metric(task="regression")
def r2(predicted: Tensor, target: Tensor) -> Tensor | None:
    """Coefficient of determination: 1 - squared error / variance of the targets."""
    total = (target.double() - target.double().mean()).square().sum()
    if not _varies(target):
        return None
    return 1 - _error(predicted, target).square().sum() / total


@metric(task="regression")
def pearson(predicted: Tensor, target: Tensor) -> Tensor | None:
    """Linear correlation."""
    if not (_varies(predicted) and _varies(target)):
        return None
    return torch.corrcoef(torch.stack([predicted.double(), target.double()]))[0, 1]


@metric(task="regression")
def spearman(predicted: Tensor, target: Tensor) -> Tensor | None:
    """Correlation of the ranks."""
    if not (_varies(predicted) and _varies(target)):
        return None
    return torch.corrcoef(torch.stack([_ranks(predicted), _ranks(target)]))[0, 1]


def _error(predicted: Tensor, target: Tensor) -> Tensor:
    return predicted.double() - target.double()


def _varies(values: Tensor) -> bool:
    return bool((values != values[0]).any())


def _ranks(values: Tensor) -> Tensor:
    """The rank of each value; equal values share the mean of theirs."""
    _, group, count = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (count.cumsum(0) - (count.double() - 1) / 2)[group]
    return ranks
