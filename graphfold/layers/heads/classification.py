"""Classification: one of several classes per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs
from graphfold.layers.heads.head import Head, mlp
from graphfold.layers.heads.similarity import Similarity
from graphfold.layers.heads.target_prediction import (
    ClassNames,
    Predictions,
    TargetPrediction,
    seven_digits,
)
from graphfold.layers.heads.targets import class_weights_of
from graphfold.metrics import confusion_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ClassHead(Head):
    """Base of heads for one class per row: softmax and cross entropy.

    Args:
        schema: the schema of the graphs; the target's `size` is the number of classes.
        level: what one row stands for.
        target: name of the target; None if the level has just one.
        class_weights: the weight of the loss of each true class; None for 1.

    Raises:
        ConfigError: if there is no such target, or it does not hold classes.
    """

    task = "multiclass"
    losses_may_be_negative = False
    metrics_by_target = False
    class_weight: Tensor  # [num_classes]

    def __init__(
        self,
        schema: Schema,
        level: str,
        target: str | None,
        class_weights: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        super().__init__(schema, level, None if target is None else [target])
        if len(self.columns) != 1:
            raise ConfigError(
                f"{type(self).__name__} predicts one target, but there are "
                f"{len(self.columns)}: {', '.join(self.targets)}. Name one with target=..."
            )
        self.num_classes = self.columns[0].size or 0
        weights = class_weights_of(class_weights, self.num_classes, self.targets[0])
        self.register_buffer("class_weight", torch.tensor(weights), persistent=False)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of graphs; of nodes and of the roots among them."""
        if self.level == "graph":
            return ("accuracy", "macro_f1", "mcc", "ece")
        binary = ("root_binary_accuracy",) if self.num_classes == 5 else ()
        return ("root_accuracy", *binary, "node_accuracy", "macro_f1", "mcc", "ece")

    @property
    def monitor(self) -> str | None:
        """Of nodes the accuracy over all of them, but for grades, whose roots the field judges.

        The roots of a treebank are all of one label, or nearly.
        """
        return None if self.level == "graph" or self.columns[0].ordered else "node_accuracy"

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        if column.shape or column.dtype not in ("int32", "int64"):
            return f"'{column.name}', which is {column.dtype}, not a class. Use RegressionHead."
        if not column.size:
            return f"'{column.name}', whose number of classes is unknown. Give the column a size."
        return None

    def target_rows(self, dag: TypedDAG) -> Tensor:
        """[num_rows] the classes; -1 where missing."""
        name = self.targets[0]
        if self.level == "graph":
            return dag.graph_column(name).long()
        classes = dag.node_targets[name].long()
        return classes[dag.output_index] if self.level == "output" else classes

    def measured(self, targets: Tensor) -> Tensor:
        return targets >= 0

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        weight = self.class_weight.to(raw.dtype)
        return functional.cross_entropy(raw, targets, weight, ignore_index=-1, reduction="none")

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_classes] probabilities."""
        return torch.softmax(raw, dim=1)

    def metric_inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        known = self.measured(targets)
        return {self.targets[0]: (prediction[known], targets[known])}

    def confusion(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        inputs = self.metric_inputs(prediction, targets)
        return {
            name: confusion_matrix(probabilities.argmax(1), classes, self.num_classes)
            for name, (probabilities, classes) in inputs.items()
        }

    def labels(self, column: Column, names: ClassNames) -> Sequence[Any]:
        return names.get(column.name, range(self.num_classes))

    def predictions(self, prediction: Tensor, names: ClassNames) -> Predictions:
        labels, name = self.labels(self.columns[0], names), self.targets[0]
        best = prediction.argmax(1).tolist()
        return [
            {name: TargetPrediction(labels[b], dict(zip(labels, p, strict=True)))}
            for b, p in zip(best, seven_digits(prediction), strict=True)
        ]

    def measured_values(self, targets: Tensor, names: ClassNames) -> list[dict[str, Any]]:
        labels, name = self.labels(self.columns[0], names), self.targets[0]
        return [{name: labels[code]} if code >= 0 else {} for code in targets.tolist()]

    def plot(self, rows: EvalRows, names: ClassNames) -> Figure | None:
        """The confusion matrix."""
        from graphfold.layers.heads.plots import confusion_plot

        (table,) = self.confusion(rows.prediction, rows.target).values()
        return confusion_plot(table, self.labels(self.columns[0], names))


class ClassificationHead(ClassHead):
    """Predicts one class, of a graph or of every node.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs; the target's `size` is the number of classes.
        level: what one row stands for.
        target: name of the target; None if the level has just one.
        class_weights: the weight of the loss of each true class, in order; None for 1. In a config
            `balanced` weighs the classes of the training part equally.
        hidden_size: width of a hidden layer, or None for none.
        dropout: probability of dropping an entry of the rows.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_classes] logits

    Raises:
        ConfigError: if there is no such target, or it does not hold classes.
    """

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        target: str | None = None,
        class_weights: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, target, class_weights)
        self.layers = mlp(input_size, self.num_classes, hidden_size, dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """The logits."""
        raw: Tensor = self.layers(rows)
        return raw


class PairClassificationHead(ClassHead):
    """Predicts one class of a pair, such as entailment, from how similar the two are.

    The hidden layer of Tai et al. (2015), https://arxiv.org/abs/1503.00075, section 4.2, under a
    softmax over classes.

    Args:
        input_size: width of each of the two vectors.
        schema: the schema of the graphs; the target's `size` is the number of classes.
        level: what one row stands for.
        target: name of the target; None if the level has just one.
        class_weights: the weight of the loss of each true class, in order; None for 1. In a config
            `balanced` weighs the classes of the training part equally.
        hidden_size: width of the hidden layer.
        dropout: probability of dropping an entry of the hidden layer.

    Shape:
        rows: [num_rows, 2, input_size]
        returns: [num_rows, num_classes] logits

    Raises:
        ConfigError: if there is no such target, or it does not hold classes.
    """

    pairs = True

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool, task: str | None) -> bool:
        return pairs

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        target: str | None = None,
        class_weights: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
        hidden_size: int = 50,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(schema, level, target, class_weights)
        self.similarity = Similarity(input_size, hidden_size)
        self.layers = mlp(hidden_size, self.num_classes, None, dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """The logits."""
        raw: Tensor = self.layers(self.similarity(rows))
        return raw
