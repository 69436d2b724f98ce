"""Metrics of yes or no, from the probability of yes, the positive class."""

from __future__ import annotations

import torch
from torch import Tensor

from graphfold.metrics.base import metric
from graphfold.metrics.calibration_error import calibration_error
from graphfold.metrics.confusion import confusion_matrix, matthews_correlation, scores_by_class


@metric(task="binary")
def roc_auc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Area under the ROC curve."""
    positives = int(target.sum())
    negatives = len(target) - positives
    if not positives or not negatives:
        return None
    _, place, counts = torch.unique(probability, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2.0)[place].double()  # of equal ones their mean
    above: Tensor = ranks[target.bool()].sum() - positives * (positives + 1) / 2  # Mann-Whitney's U
    return above / (positives * negatives)


@metric(task="binary")
def pr_auc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Area under the precision-recall curve, as average precision."""
    if not bool(target.any()):
        return None
    _, place, counts = torch.unique(probability, return_inverse=True, return_counts=True)
    hits = torch.zeros(len(counts), dtype=torch.float64)
    hits = hits.index_add(0, place, target.double()).flip(0)  # at each threshold, from high to low
    precision: Tensor = hits.cumsum(0) / counts.flip(0).cumsum(0)
    area: Tensor = (hits * precision).sum() / hits.sum()
    return area


@metric(task="binary")
def accuracy(probability: Tensor, target: Tensor) -> Tensor:
    """Share of the rows that are right at a threshold of 0.5."""
    return ((probability > 0.5) == target.bool()).double().mean()


@metric(task="binary")
def f1(probability: Tensor, target: Tensor) -> Tensor | None:
    """F1 of the positive class at a threshold of 0.5."""
    both = _scores(probability, target)["f1"]
    return None if both[1].isnan() else both[1]


@metric(task="binary")
def macro_f1(probability: Tensor, target: Tensor) -> Tensor:
    """F1 at a threshold of 0.5, averaged over the classes that occur or are predicted."""
    return _scores(probability, target)["f1"].nanmean()


@metric(task="binary")
def mcc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Matthews' correlation coefficient at a threshold of 0.5."""
    return matthews_correlation(confusion_matrix((probability > 0.5).long(), target, 2))


@metric(task="binary", higher_is_better=False)
def ece(probability: Tensor, target: Tensor) -> Tensor:
    """Expected calibration error: distance of probabilities from shares of yes, in ten bins."""
    return calibration_error(probability, target == 1)


def _scores(probability: Tensor, target: Tensor) -> dict[str, Tensor]:
    return scores_by_class(confusion_matrix((probability > 0.5).long(), target, 2))
