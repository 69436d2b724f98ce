"""QuantileHead: the median of a number and an interval around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Schema
from graphfold.errors import ConfigError
from graphfold.layers.heads.numbers import NumberHead


class QuantileHead(NumberHead):
    """Predicts the median and a lower and an upper quantile of numbers.

    The loss of a target is the mean of the three pinball losses of Koenker and Bassett (1978),
    https://doi.org/10.2307/1913643, of its standardised value y,

        max(q (y - ŷ_q), (q - 1) (y - ŷ_q))        q = (1 - interval) / 2, 1/2, (1 + interval) / 2

    The distances from the median to the outer quantiles are softplus of two outputs, so that
    quantiles never cross.

    The arguments are those of `NumberHead`, and:

    Args:
        interval: the share of the values that shall lie between the outer quantiles.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 3] standardised median, lower and upper quantile

    Raises:
        ConfigError: as `NumberHead`, and if `interval` is no share.
    """

    outputs = 3
    losses_by_name = ("quantile",)
    parts = ("pred", "lower", "upper")
    quantiles: Tensor  # [3]

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        interval: float = 0.9,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if not 0 < interval < 1:
            raise ConfigError(f"interval={interval} is no share. Use a number between 0 and 1.")
        quantiles = torch.tensor([0.5, (1 - interval) / 2, (1 + interval) / 2])
        self.register_buffer("quantiles", quantiles, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Median, lower and upper quantile, standardised."""
        middle, below, above = super().forward(rows).unbind(2)
        lower, upper = middle - functional.softplus(below), middle + functional.softplus(above)
        return torch.stack([middle, lower, upper], dim=2)

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        error = wanted.unsqueeze(2) - raw
        quantiles = self.quantiles.to(raw.dtype)
        return torch.maximum(quantiles * error, (quantiles - 1) * error).mean(2)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 3] median, lower and upper quantile in the targets' units."""
        return torch.stack([self.in_units(part) for part in raw.unbind(2)], dim=2)
