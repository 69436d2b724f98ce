"""Metrics of yes or no, from the probability of yes."""

from __future__ import annotations

from torch import Tensor

from graphfold.metrics.base import metric
from graphfold.metrics.calibration import calibration_error
from graphfold.metrics.confusion import confusion_matrix, matthews_correlation


@metric(task="binary")
def roc_auc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Area under the ROC curve."""
    # Here, for torchmetrics takes longer to load than torch, and prediction has no use for it.
    from torchmetrics.functional.classification import binary_auroc

    return binary_auroc(probability, target) if 0 < int(target.sum()) < len(target) else None


@metric(task="binary")
def pr_auc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Area under the precision-recall curve, as average precision."""
    from torchmetrics.functional.classification import binary_average_precision

    return binary_average_precision(probability, target) if bool(target.any()) else None


@metric(task="binary")
def accuracy(probability: Tensor, target: Tensor) -> Tensor:
    """Share of the rows that are right at a threshold of 0.5."""
    return ((probability > 0.5) == target.bool()).double().mean()


@metric(task="binary")
def mcc(probability: Tensor, target: Tensor) -> Tensor | None:
    """Matthews' correlation coefficient at a threshold of 0.5."""
    return matthews_correlation(confusion_matrix((probability > 0.5).long(), target, 2))


@metric(task="binary", higher_is_better=False)
def ece(probability: Tensor, target: Tensor) -> Tensor:
    """Expected calibration error: distance of probabilities from shares of yes, in ten bins."""
    return calibration_error(probability, target == 1)
