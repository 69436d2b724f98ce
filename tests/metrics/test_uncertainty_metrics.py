"""Metrics of intervals, deviations and probabilities, against torchmetrics and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from graphfold.metrics import find_metric


def test_the_calibration_error_is_that_of_torchmetrics() -> None:
    torch.manual_seed(0)
    p, yes = torch.rand(300), torch.randint(0, 2, (300,))
    got = find_metric("ece", "binary")(p, yes)
    assert got == pytest.approx(float(binary_calibration_error(p, yes, n_bins=10)), abs=1e-6)
    classes = torch.randint(0, 4, (300,))
    several = torch.softmax(3 * torch.randn(300, 4), 1)
    want = float(multiclass_calibration_error(several, classes, num_classes=4, n_bins=10))
    assert find_metric("ece", "multiclass")(several, classes) == pytest.approx(want, abs=1e-6)


def test_intervals_are_counted_and_measured() -> None:
    interval = torch.tensor([[0.0, 1.0], [0.0, 2.0], [-3.0, 0.0], [1.0, 1.0]])
    target = torch.tensor([1.0, 2.5, -3.0, 1.5])
    assert find_metric("interval_coverage", "interval")(interval, target) == 0.5
    assert find_metric("interval_width", "interval")(interval, target) == 1.5


def test_deviations_are_compared_with_errors_bin_by_bin() -> None:
    rng = np.random.default_rng(0)
    std, value, y = rng.random(95) + 0.1, rng.normal(size=95), rng.normal(size=95)
    predicted = torch.from_numpy(np.stack([value, std], 1))
    order = np.argsort(std)
    want = np.mean(
        [
            abs(np.sqrt(np.mean(std[b] ** 2)) - np.sqrt(np.mean((value - y)[b] ** 2)))
            / np.sqrt(np.mean(std[b] ** 2))
            for b in np.array_split(order, 10)
        ]
    )
    ence = find_metric("ence", "deviation")
    assert ence(predicted, torch.from_numpy(y)) == pytest.approx(want)
    few = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    assert ence(few, torch.tensor([3.0, 0.0])) == pytest.approx(0.5)
    assert ence(torch.tensor([[1.0, 0.0]]), torch.tensor([1.5])) is None
