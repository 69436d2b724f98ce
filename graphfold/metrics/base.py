"""Metric: a function of predictions and targets, with its task and direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from torch import Tensor

#: From predictions and targets to the value; None where they leave it undefined.
Compute: TypeAlias = Callable[[Tensor, Tensor], "Tensor | float | None"]


@dataclass(frozen=True)
class Metric:
    """A metric, as the decorator `metric` makes it of a function.

    Args:
        compute: the function; it is never called without rows.
        task: the kind of predictions that it is for, which is the `task` of a head:

            - "regression": predictions and targets [num_rows], in the target's unit;
            - "binary": probabilities of class 1 [num_rows], classes [num_rows] int64;
            - "multiclass": probabilities [num_rows, num_classes], classes [num_rows] int64;
            - "interval": lower and upper ends [num_rows, 2] and targets, in the target's unit;
            - "deviation": predictions and standard deviations [num_rows, 2] and targets;
            - any other name that a head gives its predictions.
        higher_is_better: whether a larger value is better.
        roots: whether it looks only at the roots, the single output nodes of their graphs; without
            roots there is no such metric.
        num_classes: how many classes there have to be; None for any number.
    """

    compute: Compute
    task: str
    higher_is_better: bool
    roots: bool = False
    num_classes: int | None = None

    @property
    def name(self) -> str:
        """The name of the function, which is the key in metrics.json."""
        return self.compute.__name__

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (self.compute.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, predicted: Tensor, target: Tensor) -> float | None:
        """The value; None if it is undefined or infinite, or without rows."""
        value = self.compute(predicted, target) if len(target) else None
        return float(value) if value is not None and math.isfinite(value) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its path: the function's own name leads here."""
        return _load, (self.compute.__module__, self.compute.__qualname__)


def metric(
    task: str,
    higher_is_better: bool = True,
    roots: bool = False,
    num_classes: int | None = None,
) -> Callable[[Compute], Metric]:
    """Makes a metric of a function `(predicted, target) -> value`; see `Metric`.

    ```python
    @metric(task="regression", higher_is_better=False)
    def median_error(predicted, target):
        return (predicted - target).abs().median()
    ```

    A config names it by its dotted path: `metrics=[rmse, my_package.median_error]`.
    """
    return lambda compute: Metric(compute, task, higher_is_better, roots, num_classes)


def _load(module: str, name: str) -> Metric:
    loaded: Metric = getattr(import_module(module), name)
    return loaded
