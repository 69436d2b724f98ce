"""MeanVarianceHead: a number with its standard deviation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.layers.heads.numbers import NumberHead

#: The least variance, in squares of the target's deviation: that of torch.nn.GaussianNLLLoss.
LEAST_VARIANCE = 1e-6


class MeanVarianceHead(NumberHead):
    """Predicts the mean and the standard deviation of a normal distribution of numbers.

    The loss of a standardised target y is equation 2 of Nix and Weigend (1994),
    https://doi.org/10.1109/ICNN.1994.374138, its negative log likelihood without the constant:

        (log σ² + (y - μ)² / σ²) / 2        σ² = softplus(a) + 1e-6

    The arguments are those of `NumberHead`.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 2] μ and a
    """

    losses_may_be_negative = True
    outputs = 2
    losses_by_name = ("mean_variance",)
    parts = ("pred", "std")

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        variance = _variance(raw)
        return 0.5 * (variance.log() + (wanted - raw[..., 0]).square() / variance)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 2] mean and standard deviation in the targets' units."""
        return torch.stack([self.in_units(raw[..., 0]), _variance(raw).sqrt() * self.std], dim=2)


def _variance(raw: Tensor) -> Tensor:
    return functional.softplus(raw[..., 1]) + LEAST_VARIANCE
