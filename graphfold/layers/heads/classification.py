"""Heads of classes: one class per row or pair, or yes and no for several targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs, Predicted
from graphfold.layers.heads.head import Head, mlp
from graphfold.layers.heads.output_column import VALUE, OutputColumn, likeliest
from graphfold.layers.heads.targets import class_weights_of
from graphfold.metrics import confusion_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Similarity(nn.Module):
    """Distance and angle between the two vectors of a pair, through a hidden layer.

    Equation 15 of Tai et al. (2015), https://arxiv.org/abs/1503.00075:

        h_x = h_L ⊙ h_R    h_+ = |h_L - h_R|    h_s = σ(W_x h_x + W_+ h_+ + b)

    Args:
        input_size: width of each vector.
        hidden_size: width of h_s; 50 in the paper.

    Shape:
        pair: [num_rows, 2, input_size]
        returns: [num_rows, hidden_size]
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * input_size, hidden_size)  # W_x and W_+ side by side

    def forward(self, pair: Tensor) -> Tensor:
        left, right = pair.unbind(1)
        both = torch.cat([left * right, (left - right).abs()], dim=1)
        return torch.sigmoid(self.linear(both))


class ClassHead(Head):
    """Base of heads for one class per row: softmax and cross entropy.

    Args:
        schema: the schema of the graphs; the target's `size` is the number of classes.
        level: the meaning of a row, "graph", "node" or "output".
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
        """Metrics of graphs; or of nodes, and of the roots among them."""
        if self.level == "graph":
            return ("accuracy", "macro_f1", "mcc", "ece")
        binary = ("root_binary_accuracy",) if self.num_classes == 5 else ()
        return ("root_accuracy", *binary, "node_accuracy", "macro_f1", "mcc", "ece")

    @property
    def monitor(self) -> str | None:
        """The accuracy of all nodes; of the roots alone for ordered classes, such as grades.

        The roots of other treebanks have nearly all the same label.
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
        return classes.index_select(0, dag.output_index) if self.level == "output" else classes

    def measured(self, targets: Tensor) -> Tensor:
        return targets >= 0

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        weight = self.class_weight.to(raw.dtype)
        return functional.cross_entropy(raw, targets, weight, ignore_index=-1, reduction="none")

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_classes] probabilities."""
        return torch.softmax(raw, dim=1)

    def measured_rows(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        measured = self.measured(targets)
        return {self.targets[0]: (prediction[measured], targets[measured])}

    def confusion(self, predicted: Predicted, targets: Tensor) -> dict[str, Tensor]:
        inputs = self.metric_inputs(predicted, targets)
        return {
            name: confusion_matrix(probabilities.argmax(1), classes, self.num_classes)
            for name, (probabilities, classes) in inputs.items()
        }

    def value_columns(self, number: int) -> list[OutputColumn]:
        """The likeliest class, and the probability of each."""
        name, labels = self.targets[0], self.labels(self.columns[0])
        best = OutputColumn(name, VALUE, type(labels[0]), lambda p: likeliest(labels, p.value))
        return [best, *(_probability(name, *pair) for pair in enumerate(labels))]

    def part_column(self, part: str, number: int) -> OutputColumn:
        """The column of a part, such as "std", of the likeliest class."""

        def read(predicted: Predicted) -> Tensor:
            best = predicted.value.argmax(1, keepdim=True)
            return predicted.parts[part].gather(1, best).squeeze(1)

        return OutputColumn(self.targets[0], part, float, read)

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        labels, name = self.labels(self.columns[0]), self.targets[0]
        return [{name: labels[code]} if code >= 0 else {} for code in targets.tolist()]

    def plot(self, rows: EvalRows) -> Figure | None:
        """The confusion matrix."""
        from graphfold.layers.heads.plots import confusion_plot

        (table,) = self.confusion(rows.prediction, rows.target).values()
        return confusion_plot(table, self.labels(self.columns[0]))


class ClassificationHead(ClassHead):
    """Predicts one class, of a graph or of every node.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs; the target's `size` is the number of classes.
        level: the meaning of a row, "graph", "node" or "output".
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
        level: the meaning of a row, "graph", "node" or "output".
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
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
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


class MultiLabelHead(Head):
    """Predicts the probabilities of several binary targets; any of them may be missing.

    The loss of a row is the weighted sum of the binary cross entropies of its measured targets,
    divided by the number of targets; the loss of a step is a mean over measured values.

    Args:
        input_size: width of the readout's rows.
        schema: the schema of the graphs.
        level: the meaning of a row, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.
        target_weights: target name -> weight of its values in the mean; 1 where it is not named.
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
        super().__init__(schema, level, targets, target_weights)
        of_targets = torch.tensor(self.target_weights)
        of_classes = torch.tensor([class_weights_of(class_weights, 2, n) for n in self.targets])
        self.register_buffer("weight", of_classes.T * of_targets, persistent=False)
        self.layers = mlp(input_size, len(self.columns), hidden_size, dropout)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The areas under curves come first: the field judges by them."""
        return ("roc_auc", "pr_auc", "accuracy", "f1", "macro_f1", "mcc", "ece")

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        # The field judges yes and no of molecules by ROC-AUC, even for a single target.
        is_assay = len(columns) > 1 or columns[0].task == "classification"
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
        classes = targets.to(raw.dtype).nan_to_num(0.0)
        losses = functional.binary_cross_entropy_with_logits(raw, classes, reduction="none")
        no, yes = self.weight.to(losses.dtype)
        weighted = losses * torch.where(classes > 0.5, yes, no)
        return torch.where(self.measured(targets), weighted, 0.0).mean(1)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets] probabilities of class 1."""
        return torch.sigmoid(raw)

    def measured_rows(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        inputs = super().measured_rows(prediction, targets)
        return {name: (p, classes.long()) for name, (p, classes) in inputs.items()}

    def confusion(self, predicted: Predicted, targets: Tensor) -> dict[str, Tensor]:
        inputs = self.metric_inputs(predicted, targets)
        return {
            name: confusion_matrix((p > 0.5).long(), classes, 2)
            for name, (p, classes) in inputs.items()
        }

    def value_columns(self, number: int) -> list[OutputColumn]:
        """The class with more than one half, and the probabilities of no and yes."""
        name, labels = self.targets[number], self.labels(self.columns[number])
        chosen = OutputColumn(
            name,
            VALUE,
            type(labels[0]),
            lambda p: [labels[is_yes] for is_yes in (p.value[:, number] > 0.5).tolist()],
        )
        no = _column(name, labels[0], lambda p: 1 - p.value[:, number].double())
        return [chosen, no, _column(name, labels[1], lambda p: p.value[:, number])]

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        labels = {column.name: self.labels(column) for column in self.columns}
        rows = super().measured_values(targets)
        return [{n: labels[n][int(value)] for n, value in row.items()} for row in rows]

    def plot(self, rows: EvalRows) -> Figure | None:
        """Histograms of the probabilities in each class."""
        from graphfold.layers.heads.plots import probability_plots

        return probability_plots(self.metric_inputs(rows.prediction, rows.target))


def _probability(target: str, number: int, label: Any) -> OutputColumn:
    return _column(target, label, lambda p: p.value[:, number])


def _column(target: str, label: Any, probability: Callable[[Predicted], Tensor]) -> OutputColumn:
    """The column of the probability of a class."""
    return OutputColumn(target, f"prob_{label}", float, probability, label)
