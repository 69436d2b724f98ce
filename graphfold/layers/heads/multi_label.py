"""MultiLabelHead: yes or no, for one or several targets per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, Schema
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs
from graphfold.layers.heads.head import Head, mlp
from graphfold.layers.heads.target_prediction import (
    ClassNames,
    Predictions,
    TargetPrediction,
    seven_digits,
)
from graphfold.layers.heads.targets import class_weights_of, weights_of
from graphfold.metrics import confusion_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MultiLabelHead(Head):
    """Predicts the probability of each of several binary targets, any of which may be missing.

    The loss of a row is the sum of the binary cross entropies of its measured targets, times their
    weights, divided by the number of targets: every measured value weighs the same by default.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: what one row stands for.
        targets: names of the targets; None for all targets of that level.
        target_weights: target name -> weight of its loss; 1 where it is not named.
        class_weights: the weights of the loss of no and of yes, for all targets or target name ->
            weights; None for 1. In a config `balanced` weighs both equally over the training part.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] logits

    Raises:
        ConfigError: if there are no such targets, or one is not binary.
    """

    task = "binary"
    losses_may_be_negative = False
    weight: Tensor  # [2, num_targets], of no and yes

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        target_weights: Mapping[str, float] | None = None,
        class_weights: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, targets)
        of_targets = torch.tensor(weights_of(target_weights, self.targets))
        of_classes = torch.tensor([class_weights_of(class_weights, 2, n) for n in self.targets])
        self.register_buffer("weight", of_classes.T * of_targets, persistent=False)
        self.layers = mlp(input_size, len(self.columns), hidden_size, dropout)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Areas first, by which the field judges."""
        return ("roc_auc", "pr_auc", "accuracy", "f1", "macro_f1", "mcc", "ece")

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool, task: str | None) -> bool:
        # Yes or no of molecules is judged by ROC-AUC, as the field does, even for a single target.
        is_assay = task == "classification" or len(columns) > 1
        is_binary = all(column.size == 2 for column in columns)
        return not pairs and level == "graph" and is_assay and is_binary

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.dtype == "bool" or (column.size == 2 and not column.shape):
            return None
        return f"'{column.name}', which is not binary. Use ClassificationHead or RegressionHead."

    def forward(self, rows: Tensor) -> Tensor:
        """The logits."""
        raw: Tensor = self.layers(rows)
        return raw

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        known = self.measured(targets)
        wanted = targets.to(raw.dtype).nan_to_num(0.0)
        losses = functional.binary_cross_entropy_with_logits(raw, wanted, reduction="none")
        no, yes = self.weight.to(losses.dtype)
        return torch.where(known, losses * torch.where(wanted > 0.5, yes, no), 0.0).mean(1)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] probabilities of class 1."""
        return torch.sigmoid(raw)

    def metric_inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        inputs = super().metric_inputs(prediction, targets)
        return {name: (p, classes.long()) for name, (p, classes) in inputs.items()}

    def confusion(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        inputs = self.metric_inputs(prediction, targets)
        return {
            name: confusion_matrix((p > 0.5).long(), classes, 2)
            for name, (p, classes) in inputs.items()
        }

    def labels(self, column: Column, names: ClassNames) -> Sequence[Any]:
        return names.get(column.name, (0, 1))

    def predictions(self, prediction: Tensor, names: ClassNames) -> Predictions:
        labels = {column.name: self.labels(column, names) for column in self.columns}
        positive = prediction.double()
        rows = seven_digits(torch.stack([1 - positive, positive], -1))
        return [
            {n: _binary(labels[n], both) for n, both in zip(self.targets, row, strict=True)}
            for row in rows
        ]

    def measured_values(self, targets: Tensor, names: ClassNames) -> list[dict[str, Any]]:
        labels = {column.name: self.labels(column, names) for column in self.columns}
        rows = super().measured_values(targets, names)
        return [{n: labels[n][int(value)] for n, value in row.items()} for row in rows]

    def plot(self, rows: EvalRows, names: ClassNames) -> Figure | None:
        """Histograms of the probabilities in either class."""
        from graphfold.layers.heads.plots import probability_plots

        return probability_plots(self.metric_inputs(rows.prediction, rows.target))


def _binary(labels: Sequence[Any], both: Sequence[float]) -> TargetPrediction:
    """Class 1 above one half."""
    return TargetPrediction(labels[both[1] > 0.5], dict(zip(labels, both, strict=True)))
