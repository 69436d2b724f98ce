"""Metrics of one class per row, from the probabilities of all classes."""

from __future__ import annotations

from torch import Tensor

from graphfold.metrics.base import metric
from graphfold.metrics.calibration_error import calibration_error
from graphfold.metrics.confusion import confusion_matrix, matthews_correlation, scores_by_class


@metric(task="multiclass")
def accuracy(probabilities: Tensor, target: Tensor) -> Tensor:
    """Share of the rows with the true class as the most probable one."""
    return (probabilities.argmax(1) == target).double().mean()


@metric(task="multiclass")
def node_accuracy(probabilities: Tensor, target: Tensor) -> Tensor:
    """Accuracy over all nodes."""
    return (probabilities.argmax(1) == target).double().mean()


@metric(task="multiclass", roots=True)
def root_accuracy(probabilities: Tensor, target: Tensor) -> Tensor:
    """Accuracy over the roots alone."""
    return (probabilities.argmax(1) == target).double().mean()


@metric(task="multiclass", roots=True, num_classes=5)
def root_binary_accuracy(probabilities: Tensor, target: Tensor) -> Tensor | None:
    """Accuracy of positive against negative over roots of five classes.

    Neutral roots (class 2) are left out, as Socher et al. (2013) do; a root is positive if
    p3 + p4 > p0 + p1.
    """
    clear = target != 2
    positive = probabilities[:, 3:].sum(1) > probabilities[:, :2].sum(1)
    right = (positive == (target > 2))[clear]
    return right.double().mean() if len(right) else None


@metric(task="multiclass")
def macro_f1(probabilities: Tensor, target: Tensor) -> Tensor:
    """F1, averaged over the classes that occur or are predicted."""
    return scores_by_class(_confusion(probabilities, target))["f1"].nanmean()


@metric(task="multiclass")
def mcc(probabilities: Tensor, target: Tensor) -> Tensor | None:
    """Matthews' correlation coefficient, over all classes."""
    return matthews_correlation(_confusion(probabilities, target))


@metric(task="multiclass", higher_is_better=False)
def ece(probabilities: Tensor, target: Tensor) -> Tensor:
    """Expected calibration error: distance of the top probability from accuracy, in ten bins."""
    top = probabilities.max(1)
    return calibration_error(top.values, top.indices == target)


def _confusion(probabilities: Tensor, target: Tensor) -> Tensor:
    return confusion_matrix(probabilities.argmax(1), target, probabilities.shape[1])
