"""EvidentialHead: a number with how much evidence there is for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Schema
from graphfold.errors import ConfigError
from graphfold.layers.heads.numbers import NumberHead

#: What keeps ν and β positive and α above one, where softplus rounds to zero.
_LEAST = 1e-6


class EvidentialHead(NumberHead):
    """Predicts a normal-inverse-gamma distribution over the mean and variance of numbers.

    Deep evidential regression, Amini et al. (2020), https://arxiv.org/abs/1910.02600. The outputs
    of a target are γ, ν > 0, α > 1 and β > 0; with Ω = 2 β (1 + ν), the loss of a standardised
    target y is (equations 8 to 10)

        log(π / ν) / 2 - α log Ω + (α + 1/2) log((y - γ)² ν + Ω) + log(Γ(α) / Γ(α + 1/2))
        + λ |y - γ| (2 ν + α)

    The first line is the negative log likelihood of Student's t distribution that the evidence
    gives y; its standard deviation, √(β (1 + 1/ν) / (α - 1)), which is the spread of the values and
    the uncertainty of the mean together, is the one that is predicted.

    The arguments are those of `NumberHead`, and:

    Args:
        evidence_penalty: λ, the price of evidence for what is wrong.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 4] γ, ν, α and β

    Raises:
        ConfigError: as `NumberHead`, and if the penalty is negative.
    """

    losses_may_be_negative = True
    outputs = 4
    losses_by_name = ("evidential",)
    parts = ("pred", "std")

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        evidence_penalty: float = 0.2,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if not evidence_penalty >= 0:
            raise ConfigError(f"evidence_penalty={evidence_penalty} is negative. Use 0 or more.")
        self.evidence_penalty = evidence_penalty

    def forward(self, rows: Tensor) -> Tensor:
        """γ, ν, α and β of the standardised targets."""
        gamma, *others = super().forward(rows).unbind(2)
        nu, alpha, beta = (functional.softplus(other) + _LEAST for other in others)
        return torch.stack([gamma, nu, alpha + 1, beta], dim=2)

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        gamma, nu, alpha, beta = raw.unbind(2)
        omega = 2 * beta * (1 + nu)
        error = wanted - gamma
        likelihood = (
            0.5 * (math.pi / nu).log()
            - alpha * omega.log()
            + (alpha + 0.5) * (error.square() * nu + omega).log()
            + torch.lgamma(alpha)
            - torch.lgamma(alpha + 0.5)
        )
        return likelihood + self.evidence_penalty * error.abs() * (2 * nu + alpha)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 2] prediction and standard deviation in the targets' units."""
        gamma, nu, alpha, beta = raw.unbind(2)
        variance = beta * (1 + 1 / nu) / (alpha - 1).clamp(min=_LEAST)
        return torch.stack([self.in_units(gamma), variance.sqrt() * self.std], dim=2)
