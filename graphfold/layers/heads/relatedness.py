"""RelatednessHead: a score of how related the two graphs of a pair are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError, DataError
from graphfold.layers.heads.classification import Similarity
from graphfold.layers.heads.head import Head, mlp


class RelatednessHead(Head):
    """Predicts a score as the mean of a distribution over the whole numbers of its scale.

    Section 4.2 of Tai et al. (2015), https://arxiv.org/abs/1503.00075, with r = low .. high:

        p̂ = softmax(W h_s + b)    ŷ = r · p̂    loss = KL(p || p̂)

    where p puts the score y between its two neighbours: p(⌊y⌋) = ⌊y⌋ - y + 1, p(⌊y⌋ + 1) = y - ⌊y⌋.

    Args:
        input_size: width of each of the two vectors.
        schema: the schema of the graphs.
        level: the meaning of a row, "graph", "node" or "output".
        target: name of the score; None if the level has just one float target.
        hidden_size: width of the hidden layer; 50 in the paper.
        low: the lowest score.
        high: the highest score.
        dropout: probability of dropping an entry of the hidden layer.

    Shape:
        rows: [num_rows, 2, input_size]
        returns: [num_rows, high - low + 1] logits

    Raises:
        ConfigError: if there is no such target, it is not a float, or the scale is empty.
        DataError: in `check_targets` and `losses`, if a score lies outside the scale.
    """

    pairs = True
    losses_may_be_negative = False
    scores: Tensor  # [high - low + 1], r in the equations

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        target: str | None = None,
        hidden_size: int = 50,
        low: int = 1,
        high: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, _only_float(schema) if target is None else [target])
        if high <= low:
            raise ConfigError(f"the scale from {low} to {high} is empty. Give low < high.")
        self.similarity = Similarity(input_size, hidden_size)
        self.layers = mlp(hidden_size, high - low + 1, None, dropout)
        scores = torch.arange(low, high + 1, dtype=torch.get_default_dtype())
        self.register_buffer("scores", scores, persistent=False)
        self._range = float(low), float(high)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics; correlation comes first, as in the paper."""
        return ("pearson", "spearman", "rmse", "mae", "mse", "r2")

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        return pairs and any(column.torch_dtype.is_floating_point for column in columns)

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.dtype in ("float32", "float64") and not column.shape:
            return None
        return f"'{column.name}', which is not a score. Use PairClassificationHead."

    def forward(self, rows: Tensor) -> Tensor:
        """The logits of the scores."""
        raw: Tensor = self.layers(self.similarity(rows))
        return raw

    def target_rows(self, dag: TypedDAG) -> Tensor:
        if dag.on_cpu is not None:  # those on a GPU would be waited for to be checked
            self.check_targets(super().target_rows(dag.on_cpu))
        return super().target_rows(dag)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        if targets.is_cpu:
            self.check_targets(targets)
        measured = self.measured(targets).squeeze(1)
        y = torch.where(measured, targets.squeeze(1).to(raw.dtype), self.scores[0])
        p = (1 - (y.unsqueeze(1) - self.scores).abs()).clamp(min=0)  # a hat around each score
        divergence = (torch.xlogy(p, p) - p * torch.log_softmax(raw, dim=1)).sum(1)
        return torch.where(measured, divergence, 0.0)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, 1] the expected score."""
        return (torch.softmax(raw, dim=1) @ self.scores.to(raw.dtype)).unsqueeze(1)

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and the highest score."""
        return self._range

    def check_targets(self, targets: Tensor) -> None:
        """Raises DataError for a score outside the scale."""
        low, high = self.possible
        wrong = targets[(targets < low) | (targets > high)]
        if len(wrong):
            raise DataError(
                f"target '{self.targets[0]}' has the score {float(wrong[0]):g}, outside "
                f"{int(low)} .. {int(high)}. Set low and high of {type(self).__name__}."
            )


def _only_float(schema: Schema) -> list[str] | None:
    floats = [c.name for c in schema.graph_targets if c.dtype in ("float32", "float64")]
    return floats if len(floats) == 1 else None
