"""RegressionHead: one or several numbers per row, in their own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphfold.dag import Column, Schema
from graphfold.errors import ConfigError
from graphfold.layers.heads.head import Head, mlp


class RegressionHead(Head):
    """Predicts numbers; learns them standardised, gives them back in their units.

    The loss of a row is the squared error of its measured, standardised targets, summed and divided
    by the number of targets: every measured value weighs the same.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: what one row stands for.
        targets: names of the targets; None for all targets of that level.
        scalers: target name -> (mean, standard deviation) of the training part; None to learn the
            targets as they are.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised predictions

    Raises:
        ConfigError: if there are no such targets, one is not a float, or one has no scaler.
    """

    mean: Tensor  # [num_targets]
    std: Tensor  # [num_targets]

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, targets)
        self.layers = mlp(input_size, len(self.columns), hidden_size, dropout)
        mean, std = _scales(self.targets, scalers)
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    @property
    def monitor(self) -> str | None:
        """The loss where there are several targets.

        It is in units of each target's deviation; a mean of errors would mix the targets' units.
        """
        return "loss" if len(self.columns) > 1 else None

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool, task: str | None) -> bool:
        return not pairs and all(column.torch_dtype.is_floating_point for column in columns)

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.dtype in ("float32", "float64") and not column.shape:
            return None
        return f"'{column.name}', which is not one float per row. Use ClassificationHead."

    def forward(self, rows: Tensor) -> Tensor:
        """The standardised predictions."""
        raw: Tensor = self.layers(rows)
        return raw

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        wanted = (targets.to(raw.dtype) - self.mean) / self.std
        # An unmeasured target is set to the prediction itself: no error and no gradient.
        wanted = torch.where(self.measured(targets), wanted, raw.detach())
        return (raw - wanted).square().mean(1)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] in the targets' own units."""
        return raw * self.std + self.mean


def _scales(
    targets: Sequence[str], scalers: Mapping[str, tuple[float, ...]] | None
) -> tuple[list[float], list[float]]:
    if scalers is None:
        return [0.0] * len(targets), [1.0] * len(targets)
    absent = [name for name in targets if name not in scalers]
    if absent:
        raise ConfigError(
            f"there is no scaler for the target {', '.join(absent)}. Fit one on the training part."
        )
    means = [float(scalers[name][0]) for name in targets]
    # A target that never varies has no scale of its own.
    return means, [float(scalers[name][1]) or 1.0 for name in targets]
