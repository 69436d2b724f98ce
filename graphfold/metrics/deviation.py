"""Metrics of the standard deviations that predictions come with."""

from __future__ import annotations

from torch import Tensor

from graphfold.metrics.base import metric
from graphfold.metrics.calibration_error import normalised_calibration_error


@metric(task="deviation", higher_is_better=False)
def ence(predicted: Tensor, target: Tensor) -> Tensor:
    """Expected normalised calibration error: distance of deviations from errors, in ten bins."""
    return normalised_calibration_error(predicted[:, 1], predicted[:, 0] - target)
