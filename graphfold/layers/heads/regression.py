"""RegressionHead: one or several numbers per row, in their own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn import functional

from graphfold.dag import Schema
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.heads.numbers import NumberHead


class RegressionHead(NumberHead):
    """Predicts numbers; learns them standardised, gives them back in their units.

    Its loss is that of the standardised targets: the squared error, the absolute error, or that of
    Huber (1964), https://doi.org/10.1214/aoms/1177703732, which is half the square of an error up
    to `delta` and grows like the error beyond.

    The arguments are those of `NumberHead`, and:

    Args:
        loss: "mse", "mae" or "huber".
        delta: where Huber's loss becomes linear, in standard deviations of the target.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised predictions

    Raises:
        ConfigError: as `NumberHead`, and if there is no such loss.
    """

    losses_by_name = ("mse", "mae", "huber")

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        loss: str = "mse",
        delta: float = 1.0,
        target_weights: Mapping[str, float] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, target_weights, hidden_size, dropout
        )
        if loss not in self.losses_by_name:
            raise ConfigError(
                f"there is no loss '{loss}' here.{did_you_mean(loss, self.losses_by_name)} Use one "
                f"of {', '.join(self.losses_by_name)}."
            )
        if not delta > 0:
            raise ConfigError(f"delta={delta} is not positive. Give Huber's loss a width.")
        self.loss = loss
        self.delta = delta

    @property
    def monitor(self) -> str | None:
        """The loss where there are several targets.

        It is in units of each target's deviation; a mean of errors would mix the targets' units.
        """
        return "loss" if len(self.columns) > 1 else None

    def target_losses(self, raw: Tensor, wanted: Tensor) -> Tensor:
        if self.loss == "mse":
            return (raw - wanted).square()
        if self.loss == "mae":
            return (raw - wanted).abs()
        return functional.huber_loss(raw, wanted, reduction="none", delta=self.delta)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] in the targets' own units."""
        return self.in_units(raw)
