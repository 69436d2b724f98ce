"""Head: from the rows of a readout to losses, predictions, their columns and plots."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError
from graphfold.layers.dropout import Dropout
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs, Predicted
from graphfold.layers.heads.output_column import OutputColumn, part_column, value_column
from graphfold.layers.heads.targets import as_numbers, find_targets, weights_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Head(nn.Module, ABC):
    """Base of the last part of a model: its losses, predictions, metrics, columns and plot.

    A row stands for a graph, a node or an output node, by the readout's `level`:

        raw = model(batch)                          # [num_rows, ...]
        targets = model.head.target_rows(batch.dag) # one row each
        losses = model.head.losses(raw, targets)    # [num_rows], 0 where nothing is measured
        predicted = model.predict(raw)              # a Predicted, whose value `decode` gives
        columns = model.head.output_columns(model.parts)
        values = [column.values(predicted) for column in columns]

    A subclass defines `refuses`, `forward`, `losses` and `decode`. The other methods are those of
    numbers: `decode` returns [num_rows, num_targets], and a missing target is NaN. A head that
    predicts several numbers for each target names them in `parts`; they are the last dimension of
    the result of `decode`: [num_rows, num_targets, num_parts].

    Args:
        schema: the schema of the graphs.
        level: the meaning of a row, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.
        target_weights: target name -> weight of its values in the loss; 1 where it is not named.

    Attributes:
        task: the kind of its predictions, which decides the possible metrics; see `Metric`.
        metrics: the metrics that are computed unless the config names others (names, or dotted
            paths); the first one chooses the best checkpoint.
        monitor: another metric that chooses the best checkpoint; None for the first of `metrics`.
        losses_may_be_negative: whether a row may have a loss below zero, as a log likelihood has;
            otherwise training ends at one.
        metrics_by_target: whether metrics are also computed for each target, as METRIC/TARGET.
        parts: the numbers in the result of `decode` for each target: first "pred", the value; "std"
            is its standard deviation, "lower" and "upper" are the ends of an interval around it.
        pairs: whether a row of the readout must be a pair.
        level: the argument.
        columns: the schema's columns of the targets, with their units.
        targets: names of the targets.
        target_weights: the weight of each target.

    Raises:
        ConfigError: if the schema has no such targets at that level, or the head cannot predict
            some of them; it names all of these.
    """

    task: str = "regression"
    losses_may_be_negative: bool = True
    metrics_by_target: bool = True
    parts: tuple[str, ...] = ("pred",)
    pairs: bool = False

    def __init__(
        self,
        schema: Schema,
        level: str,
        targets: Sequence[str] | None,
        target_weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.level = level
        self.columns = find_targets(schema, level, targets)
        self.target_weights = weights_of(target_weights, self.targets)
        faults = [fault for fault in map(self.refuses, self.columns) if fault]
        if faults:
            raise ConfigError(
                f"{type(self).__name__} cannot predict " + " Nor can it: ".join(faults)
            )

    def __repr__(self) -> str:
        """The targets with their classes or units."""
        return f"{type(self).__name__}({', '.join(map(str, self.columns))} of each {self.level})"

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(column.name for column in self.columns)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the default metrics; the first one chooses the best checkpoint."""
        return ("rmse", "mae", "mse", "r2", "pearson", "spearman")

    @property
    def monitor(self) -> str | None:
        """The loss, for several numbers: it is in units of each target's deviation.

        A mean of errors would mix the targets' units.
        """
        return "loss" if self.task == "regression" and len(self.columns) > 1 else None

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        """True if `auto` may choose this head for some targets; see `choose_head`.

        Args:
            columns: all targets of the level.
            level: the level of the targets, "graph" or "node".
            pairs: whether a row is a pair.
        """
        return False

    @classmethod
    @abstractmethod
    def refuses(cls, column: Column) -> str | None:
        """The reason why the head cannot predict a target; None if it can."""

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """[num_rows, ...] the raw outputs, from the rows of the readout [num_rows, input_size]."""

    @abstractmethod
    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the loss of each row; 0, without a gradient, if no target is measured.

        It is the weighted sum of the losses of the measured targets, divided by the number of all
        targets. Divided by `denominator`, the sum over rows is a mean over measured values.
        """

    @abstractmethod
    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, ...] predictions: values in the targets' own units, or probabilities."""

    def predict(self, raw: Tensor) -> Predicted:
        """The result of `decode` with its parts by name."""
        decoded = self.decode(raw)
        value, *others = decoded.unbind(-1) if len(self.parts) > 1 else (decoded,)
        return Predicted(value, dict(zip(self.parts[1:], others, strict=True)))

    @property
    def shown_parts(self) -> tuple[str, ...]:
        """The parts of the predictions, without the value, that have a column."""
        return self.parts[1:]

    def output_columns(self, parts: Sequence[str] | None = None) -> list[OutputColumn]:
        """The columns of predictions: TARGET_pred, TARGET_prob_CLASS, TARGET_PART, by target.

        Args:
            parts: the parts that have a column; None for `shown_parts`. An ensemble adds "std",
                calibration adds "lower" and "upper".
        """
        names = self.shown_parts if parts is None else parts
        columns: list[OutputColumn] = []
        for number in range(len(self.columns)):
            columns += self.value_columns(number)
            columns += [self.part_column(name, number) for name in names]
        return columns

    def value_columns(self, number: int) -> list[OutputColumn]:
        """The columns of a target's value: one for a number; for classes also probabilities."""
        return [value_column(self.targets[number], number)]

    def part_column(self, part: str, number: int) -> OutputColumn:
        """The column of a part of a target's predictions."""
        return part_column(self.targets[number], part, number)

    def labels(self, column: Column) -> Sequence[Any]:
        """The classes of a target; empty for numbers."""
        return column.classes

    @property
    def possible(self) -> tuple[float, float]:
        """The smallest and the largest possible value of a target."""
        return -math.inf, math.inf

    def target_rows(self, dag: TypedDAG) -> Tensor:
        """[num_rows, num_targets] the targets as numbers, NaN where missing, one row per raw row.

        Heads of one class per row return [num_rows] codes instead, -1 where missing.
        """
        space = "graph" if self.level == "graph" else "node"
        rows = [as_numbers(dag.columns[space][column.name], column) for column in self.columns]
        stacked = torch.stack(rows, dim=1)
        return stacked.index_select(0, dag.output_index) if self.level == "output" else stacked

    def row_graph(self, dag: TypedDAG) -> Tensor:
        """[num_rows] the graph that each row belongs to."""
        if self.level == "graph":
            return torch.arange(dag.num_graphs, device=dag.batch.device)
        return dag.batch if self.level == "node" else dag.batch.index_select(0, dag.output_index)

    def check_targets(self, targets: Tensor) -> None:
        """Raises DataError for a value that cannot be learnt; called before training.

        Shape:
            targets: the result of `target_rows`
        """

    def measured(self, targets: Tensor) -> Tensor:
        """Bool, like `targets`: whether each value is measured."""
        return ~targets.isnan()

    def is_measured(self, targets: Tensor) -> Tensor:
        """[num_rows] bool, whether any target of a row is measured."""
        measured = self.measured(targets)
        return measured if measured.dim() == 1 else measured.any(1)

    def value_weights(self, targets: Tensor) -> Tensor:
        """[num_rows, num_targets] the weight of each value in the mean loss; 0 where missing."""
        measured = self.measured(targets).reshape(len(targets), len(self.columns))
        return measured * torch.tensor(self.target_weights, device=targets.device).double()

    def denominator(
        self, targets: Tensor, graph: Tensor, times: Tensor, reduction: str = "per_graph"
    ) -> Tensor:
        """The divisor of the sum of `losses` that makes it a mean over measured values.

        A missing value does not change the weight of the others: with T targets, a row with one
        value has 1/T of the loss of that value, and counts 1/T here.

        Args:
            targets: the result of `target_rows`.
            graph: [num_rows] the graph of each row.
            times: [num_graphs] the weight of each graph.
            reduction: "per_node" for a mean over rows; "per_graph" for a mean over graphs of the
                sums over their rows.
        """
        weights = self.value_weights(targets)
        if reduction == "per_graph":
            rows = graph.unsqueeze(1).expand_as(weights)
            of_graph = weights.new_zeros(len(times), weights.shape[1])
            weights = of_graph.scatter_reduce(0, rows, weights, "amax")
        else:
            times = times[graph]
        return times.to(weights) @ weights.mean(1)

    def compared(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers that predictions are compared with, and whether each is measured.

        Shape:
            targets: the result of `target_rows`
            returns: [num_rows, num_targets] each, the second one bool
        """
        return targets, self.measured(targets)

    def metric_inputs(self, predicted: Predicted, targets: Tensor) -> MetricInputs:
        """Target -> predictions and targets for its metrics, where it is measured."""
        return self.measured_rows(predicted.value, targets)

    def uncertainty_tasks(self, parts: Collection[str]) -> tuple[str, ...]:
        """The tasks of the metrics of uncertainty that predictions with some parts have."""
        judged = {"interval": {"lower", "upper"}, "deviation": {"std"}}
        is_number = self.task == "regression"
        return tuple(task for task, names in judged.items() if is_number and names <= {*parts})

    def uncertainty_inputs(self, task: str, predicted: Predicted, targets: Tensor) -> MetricInputs:
        """The inputs of the metrics of one of `uncertainty_tasks`, like `metric_inputs`.

        A target without intervals has no rows.
        """
        parts = predicted.parts
        if task == "deviation":
            both = torch.stack([predicted.value, parts["std"]], -1)
            return self.measured_rows(both, targets)
        inputs = self.measured_rows(torch.stack([parts["lower"], parts["upper"]], -1), targets)
        finite = {name: ~ends[:, 1].isinf() for name, (ends, _) in inputs.items()}
        return {n: (ends[finite[n]], y[finite[n]]) for n, (ends, y) in inputs.items()}

    def measured_rows(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        """Target -> a part of the predictions and the targets, where it is measured."""
        values, measured = self.compared(targets)
        return {
            name: (prediction[rows, i], values[rows, i])
            for i, (name, rows) in enumerate(zip(self.targets, measured.T, strict=True))
        }

    def confusion(self, predicted: Predicted, targets: Tensor) -> dict[str, Tensor]:
        """Target -> [num_classes, num_classes], see `confusion_matrix`; empty without classes."""
        return {}

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        """The measured values of each row by target, in the form of `output_columns`."""
        measured = self.measured(targets).tolist()
        return [
            {name: value for name, value, m in zip(self.targets, *row, strict=True) if m}
            for row in zip(targets.tolist(), measured, strict=True)
        ]

    def plot(self, rows: EvalRows) -> Figure | None:
        """A plot of predictions against targets for the report; None without measured targets."""
        from graphfold.layers.heads.plots import scatter_plots  # loads matplotlib

        intervals = None
        if "interval" in self.uncertainty_tasks(rows.prediction.parts):
            intervals = self.uncertainty_inputs("interval", rows.prediction, rows.target)
        inputs = self.metric_inputs(rows.prediction, rows.target)
        return scatter_plots(self.columns, inputs, intervals)


def mlp(
    input_size: int, output_size: int, hidden_size: int | None, dropout: float
) -> nn.Sequential:
    """Dropout and a linear layer; with `hidden_size`, after a hidden layer with ReLU."""
    for size in (input_size, hidden_size):
        if size is not None and size < 1:
            raise ConfigError(f"a layer of width {size} holds nothing. Set hidden_size from 1 on.")
    layers: list[nn.Module] = [Dropout(dropout)]
    if hidden_size is not None:
        layers += [nn.Linear(input_size, hidden_size), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden_size or input_size, output_size))
