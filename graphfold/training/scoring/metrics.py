"""Metrics over a whole split, from all its predictions at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

#: A metric without a value (one class only, no variation, no record) is None, with a warning.
Metrics = dict[str, float | None]

#: Metrics of which less is better; of all others more is.
ERRORS = ("loss", "mse", "rmse", "mae")


class UndefinedMetricWarning(UserWarning):
    """A metric that the data leaves undefined; it is reported as null."""


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better; "val/rmse/logS" is judged by "rmse"."""
    return any(part in ERRORS for part in metric.split("/"))


def classification_metrics(probability: Tensor, target: Tensor) -> Metrics:
    """Accuracy, and F1 averaged over the classes that occur.

    Shape:
        probability: [num_rows, num_classes]
        target: [num_rows] int64
    """
    predicted = probability.argmax(1)
    return {
        "accuracy": mean(predicted == target),
        "macro_f1": _when(
            len(target) > 0,
            lambda: _functional().classification.multiclass_f1_score(
                predicted, target, num_classes=probability.shape[1], average="macro"
            ),
        ),
    }


def binary_metrics(probability: Tensor, target: Tensor) -> Metrics:
    """Areas under the ROC and the precision-recall curve, and accuracy.

    Shape:
        probability: [num_rows] of class 1
        target: [num_rows] int64, 0 or 1
    """
    both = 0 < int(target.sum()) < len(target)
    return {
        "roc_auc": _when(
            both, lambda: _functional().classification.binary_auroc(probability, target)
        ),
        "pr_auc": _when(
            bool(target.sum()),
            lambda: _functional().classification.binary_average_precision(probability, target),
        ),
        "accuracy": mean((probability > 0.5) == target.bool()),
    }


def regression_metrics(predicted: Tensor, target: Tensor) -> Metrics:
    """Errors and correlations, in the target's own units.

    Shape:
        predicted, target: [num_rows]
    """
    predicted, target = predicted.double(), target.double()
    error = predicted - target
    varied = len(target) > 1 and bool((target != target[0]).any())
    answered = varied and bool((predicted != predicted[0]).any())
    return {
        "rmse": _when(len(target) > 0, lambda: error.square().mean().sqrt()),
        "mae": mean(error.abs()),
        "mse": mean(error.square()),
        "r2": _when(varied, lambda: _functional().r2_score(predicted, target)),
        "pearson": _when(answered, lambda: _correlation(predicted, target)),
        "spearman": _when(answered, lambda: _correlation(_ranks(predicted), _ranks(target))),
    }


def _correlation(first: Tensor, second: Tensor) -> Tensor:
    return torch.corrcoef(torch.stack([first, second]))[0, 1]


def _ranks(values: Tensor) -> Tensor:
    """The rank of each value; equal values share the mean of theirs."""
    _, group, count = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (count.cumsum(0) - (count - 1) / 2)[group]
    return ranks


def mean(values: Tensor) -> float | None:
    """The mean of some numbers or truths; None of nothing."""
    return values.double().mean().item() if len(values) else None


def average(metrics: Mapping[str, Metrics]) -> Metrics:
    """Per task `metric/TASK`, and the mean over the tasks that have a value without suffix."""
    tasks = list(metrics.values())
    result: Metrics = {}
    for name in tasks[0] if tasks else ():
        known = [task[name] for task in tasks if task[name] is not None]
        result[name] = sum(v for v in known if v is not None) / len(known) if known else None
    for task, values in metrics.items():
        result |= {f"{name}/{task}": value for name, value in values.items()}
    return result


def warn_of_undefined(metrics: Mapping[str, float | None]) -> None:
    """One warning that names the metrics without a value."""
    undefined = [name for name, value in metrics.items() if value is None]
    if undefined:
        warnings.warn(
            f"{', '.join(undefined)}: undefined for these records (one class only, no variation "
            "or no measured target), reported as null.",
            UndefinedMetricWarning,
            stacklevel=2,
        )


def _functional() -> Any:
    """The library's functions: it takes longer to load than torch, and prediction needs none."""
    from torchmetrics import functional

    return functional


def _when(defined: bool, compute: Callable[[], Tensor]) -> float | None:
    if not defined:
        return None
    with _without_advice():
        value = compute().item()
    return value if torch.isfinite(torch.tensor(value)) else None


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silences the library's remarks on input that was checked before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
