"""Errors of calibration: distances between predicted probabilities and observed frequencies."""

from __future__ import annotations

import torch
from torch import Tensor

#: Bins of similar predictions.
NUM_BINS = 10


def calibration_error(probability: Tensor, happened: Tensor) -> Tensor:
    """The expected calibration error.

    Equation 3 of Guo et al. (2017), https://arxiv.org/abs/1706.04599: the mean over ten equal bins
    of the probability, weighed by their rows, of the distance between the mean probability of a bin
    and the share of its rows where the event happened.

    Shape:
        probability: [num_rows]
        happened: [num_rows] bool
    """
    bins = (probability * NUM_BINS).ceil().long().sub(1).clamp(0, NUM_BINS - 1)
    gap = torch.zeros(NUM_BINS, dtype=torch.float64)
    gap.index_add_(0, bins, probability.double() - happened.double())
    return gap.abs().sum() / len(probability)


def normalised_calibration_error(std: Tensor, error: Tensor) -> Tensor:
    """The expected normalised calibration error of standard deviations.

    Equation 8 of Levi et al. (2022), https://doi.org/10.3390/s22155540: rows in the order of their
    deviation, in ten bins of equal size (fewer where there are fewer rows); the mean over the bins
    of |√mean σ² - √mean error²| / √mean σ².

    Shape:
        std, error: [num_rows]
    """
    order = std.argsort(stable=True)
    bins = min(NUM_BINS, len(std))
    pairs = zip(std[order].tensor_split(bins), error[order].tensor_split(bins), strict=True)
    errors = []
    for deviation, missed in pairs:
        predicted, real = (x.double().square().mean().sqrt() for x in (deviation, missed))
        errors.append((predicted - real).abs() / predicted)
    return torch.stack(errors).mean()
