"""MeanVarianceHead: a number with its standard deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Schema
from graphfold.layers.heads.numbers import NumberHead

#: The least variance, in squares of the target's deviation: that of torch.nn.GaussianNLLLoss.
LEAST_VARIANCE = 1e-6


class MeanVarianceHead(NumberHead):
    """Predicts the mean and the standard deviation of a normal distribution of numbers.

    The loss of a standardised target y is equation 2 of Nix and Weigend (1994),
    https://doi.org/10.1109/ICNN.1994.374138, its negative log likelihood without the constant:

        (log σ² + (y - μ)² / σ²) / 2        σ² = softplus(a) + 1e-6

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: what one row stands for.
        targets: names of the targets; None for all targets of that level.
        scalers: target name -> (mean, standard deviation) of the training part; None to learn the
            targets as they are.
        target_weights: target name -> weight of its loss; 1 where it is not named.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets, 2] μ and a

    Raises:
        ConfigError: if there are no such targets, one is not a float, or one has no scaler.
    """

    outputs = 2
    losses_by_name = ("mean_variance",)
    parts = ("pred", "std")

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )

    @property
    def monitor(self) -> str | None:
        """The loss, which judges the deviation, too."""
        return "loss"

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        variance = _variance(raw)
        return 0.5 * (variance.log() + (wanted - raw[..., 0]).square() / variance)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, 2] mean and standard deviation in the targets' units."""
        return torch.stack([self.in_units(raw[..., 0]), _variance(raw).sqrt() * self.std], dim=2)


def _variance(raw: Tensor) -> Tensor:
    return functional.softplus(raw[..., 1]) + LEAST_VARIANCE
