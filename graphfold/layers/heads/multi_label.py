"""MultiLabelHead: yes or no, for one or several targets per row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, Schema
from graphfold.layers.heads.head import Head, mlp


class MultiLabelHead(Head):
    """Predicts the probability of each of several binary targets, any of which may be missing.

    The loss of a row is the sum of the binary cross entropies of its measured targets, divided by
    the number of targets: every measured value weighs the same.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: what one row stands for.
        targets: names of the targets; None for all targets of that level.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] logits

    Raises:
        ConfigError: if there are no such targets, or one is not binary.
    """

    kind = "multilabel"

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, targets)
        self.layers = mlp(input_size, len(self.columns), hidden_size, dropout)

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.dtype == "bool" or (column.size == 2 and not column.shape):
            return None
        return f"'{column.name}', which is not binary. Use ClassificationHead or RegressionHead."

    def forward(self, rows: Tensor) -> Tensor:
        """The logits."""
        raw: Tensor = self.layers(rows)
        return raw

    def measured(self, targets: Tensor) -> Tensor:
        return ~targets.isnan()

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        known = self.measured(targets)
        wanted = targets.to(raw.dtype).nan_to_num(0.0)
        losses = functional.binary_cross_entropy_with_logits(raw, wanted, reduction="none")
        return torch.where(known, losses, 0.0).mean(1)

    def decode(self, raw: Tensor) -> dict[str, Tensor]:
        return {"probabilities": torch.sigmoid(raw)}
