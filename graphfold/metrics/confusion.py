"""Confusion matrices, and scores that are computed from them."""

from __future__ import annotations

import torch
from torch import Tensor


def confusion_matrix(predicted: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Counts of true against predicted classes.

    Args:
        predicted: the predicted classes.
        target: the true classes.
        num_classes: how many there are.

    Shape:
        predicted, target: [num_rows] int64
        returns: [num_classes, num_classes] int64; the true class is the row
    """
    codes = target * num_classes + predicted
    return torch.bincount(codes, minlength=num_classes**2).view(num_classes, num_classes)


def scores_by_class(confusion: Tensor) -> dict[str, Tensor]:
    """Precision, recall, F1 and support of every class.

    A score is NaN where it is undefined: the precision of a class that is never predicted, the
    recall of one that never occurs, the F1 of one that does neither.

    Shape:
        confusion: [num_classes, num_classes], as `confusion_matrix` gives it
        returns: name -> [num_classes] float64, the support int64
    """
    table = confusion.double()
    right, occurring, predicted = table.diagonal(), table.sum(1), table.sum(0)
    return {
        "precision": right / predicted,
        "recall": right / occurring,
        "f1": 2 * right / (occurring + predicted),
        "support": confusion.sum(1),
    }


def matthews_correlation(confusion: Tensor) -> Tensor | None:
    """The correlation of predicted and true classes; None if only one class occurs.

    R_K of Gorodkin (2004), https://doi.org/10.1016/j.compbiolchem.2004.09.006; for two classes it
    is the coefficient of Matthews (1975). Constant predictions have 0.
    """
    table = confusion.double()
    occurring, predicted, total = table.sum(1), table.sum(0), table.sum()
    spread_of_targets = total**2 - occurring.square().sum()
    spread_of_predictions = total**2 - predicted.square().sum()
    if not spread_of_targets:
        return None
    covariance = table.trace() * total - occurring @ predicted
    return covariance / (spread_of_targets * spread_of_predictions).sqrt().clamp(min=1)
