"""Head: from the rows of a readout to losses, metrics, predictions and pictures.

Before it stand `Targets`, the columns of a schema that a head predicts, and `TargetPrediction`,
what a model says of one target, in the words of the data.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.dropout import Dropout
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs, Predicted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass  # one is made for every node, and a frozen one takes twice as long
class TargetPrediction:
    """One target of one row.

    Args:
        value: the class or the number.
        probabilities: class -> probability, where classes are predicted; there are many of them,
            so heads round them together (see `seven_digits`).
        extra: further numbers by name, as the head's `extra_columns` lists them.
    """

    value: Any
    probabilities: Mapping[Any, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rounds: a float32 has no more than seven digits. An infinite extra number is none."""
        if isinstance(self.value, float):
            self.value = _digits(self.value)
        if self.extra:
            self.extra = {key: _known(_digits(value)) for key, value in self.extra.items()}


#: For each row, target -> what is said of it.
Predictions: TypeAlias = list[dict[str, TargetPrediction]]


def seven_digits(numbers: Tensor) -> list[Any]:
    """`numbers.tolist()`, rounded: a float32 has no more than seven digits."""
    values = numbers.double().numpy()
    size = np.abs(values)
    # A power of ten up to 10**22 is exact, so a whole number over it is the nearest float64.
    is_usual = (size > 1e-15) & (size < 1e7)
    scale = 10.0 ** (6 - np.floor(np.log10(size, where=is_usual, out=np.zeros_like(size))))
    rounded = np.rint(values * scale) / scale
    is_odd = ~is_usual & (values != 0)
    rounded[is_odd] = [_digits(value) for value in values[is_odd].tolist()]
    return rounded.tolist()  # type: ignore[no-any-return]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _digits(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value


def find_targets(schema: Schema, level: str, names: Sequence[str] | None) -> tuple[Column, ...]:
    """The target columns of a level, by name; None for all of them.

    Raises:
        ConfigError: if the level has no targets, or lacks some of the names; it names them all.
    """
    here, elsewhere = schema.graph_targets, schema.node_targets
    if level != "graph":
        here, elsewhere = elsewhere, here
    columns = {column.name: column for column in here}
    names = list(columns) if names is None else list(names)
    if not names:
        raise ConfigError(
            f"there is no target for one row per {level}: the schema has "
            f"{_listed(schema.graph_targets)} for graphs and {_listed(schema.node_targets)} for "
            "nodes. Choose a readout of the level that has targets: for nodes "
            "model.readout._target_=graphfold.layers.OutputReadout, for bonds of molecules "
            "BondReadout, for graphs MeanReadout."
        )
    others = {column.name for column in elsewhere}
    faults = [_unknown(name, level, columns, others) for name in names if name not in columns]
    if faults:
        raise ConfigError(" ".join(faults))
    return tuple(columns[name] for name in names)


def as_numbers(values: Tensor, column: Column) -> Tensor:
    """A target as floats, NaN where it is missing."""
    if values.is_floating_point():
        return values
    missing = values < 0 if column.missing == -1 else torch.zeros_like(values, dtype=torch.bool)
    return values.to(torch.get_default_dtype()).masked_fill(missing, float("nan"))


def weights_of(weights: Mapping[str, float] | None, names: Sequence[str]) -> list[float]:
    """The weight of each of some targets; 1 where none is given.

    Raises:
        ConfigError: if it names something else, or a weight is no number from 0 on.
    """
    given = dict(weights or {})
    for name, weight in given.items():
        if name not in names:
            raise ConfigError(
                f"target_weights names '{name}', which is no target.{did_you_mean(name, names)} "
                f"The targets are: {', '.join(names)}."
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
            raise ConfigError(f"target_weights gives '{name}' {weight!r}. Give a number from 0 on.")
    numbers = [float(given.get(name, 1.0)) for name in names]
    if not any(numbers):
        raise ConfigError("target_weights gives every target 0. Give one of them a weight above 0.")
    return numbers


def class_weights_of(weights: object, num_classes: int, target: str) -> list[float]:
    """The weight of each class of a target; None gives every class the weight 1.

    Args:
        weights: a list of numbers, or for each target one.
        num_classes: how many classes there are.
        target: the name of the target.

    Raises:
        ConfigError: if there is not one number from 0 on for each class.
    """
    given = weights.get(target) if isinstance(weights, Mapping) else weights
    if given is None:
        return [1.0] * num_classes
    numbers = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    fits = all(isinstance(w, int | float) and w >= 0 for w in numbers) and any(numbers)
    if len(numbers) != num_classes or not fits:
        raise ConfigError(
            f"class_weights gives '{target}' {given!r}. Give {num_classes} numbers from 0 on, one "
            "for each class in order, or 'balanced'."
        )
    return [float(weight) for weight in numbers]


def _unknown(name: str, level: str, columns: dict[str, Column], others: set[str]) -> str:
    if name in others:
        kind, remedy = ("nodes", "NodeReadout or OutputReadout")
        if level != "graph":
            kind, remedy = ("whole graphs", "a readout with one row per graph")
        return f"'{name}' is a target of {kind}, but a row stands for one {level}. Use {remedy}."
    return (
        f"the schema has no target '{name}' for a {level}.{did_you_mean(name, columns)} "
        f"It has: {', '.join(columns) or 'none'}."
    )


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(f"'{column.name}'" for column in columns) or "none"


#: What is told of a prediction at neither limit, at the high one, and (index -1) at the low one.
LIMITS = (None, "high", "low")


class Head(nn.Module, ABC):
    """The predictions of a model: their loss, metrics, form and picture.

    One row stands for a graph, a node or an output node, as the readout's `level` says. Nothing
    outside of a head knows what kind of head it is. Training uses

        raw = model(batch)                          # [num_rows, ...]
        targets = model.head.target_rows(batch.dag) # one row each
        losses = model.head.losses(raw, targets)    # [num_rows], 0 where nothing is measured
        graph = model.head.row_graph(batch.dag)     # [num_rows] the graph that each row belongs to

    scoring and the report

        predicted = model.head.predict(raw)           # a Predicted, whose value `decode` gives
        model.head.metric_inputs(predicted, targets)  # for the metrics of its `task`
        model.head.confusion(predicted, targets)      # where it predicts classes
        model.head.plot(rows)                         # a figure, or None

    and prediction

        model.head.describe(predicted)      # a TargetPrediction per row and target
        model.head.table_columns            # the names of a table's columns
        model.head.table_types              # float, int or str of each

    A subclass has to write `refuses`, `forward`, `losses` and `decode`. The other methods are as
    they are for numbers: `decode` gives [num_rows, num_targets], a missing target is NaN. A head
    that tells more than one number of each target names them in `parts`; they are the last
    dimension of what `decode` gives, then: [num_rows, num_targets, num_parts].

    Ensembles, intervals and calibration (`graphfold.layers.uncertainty`) are functions from
    predictions to predictions. What they add to those of a head has its names in `added`.

    Args:
        schema: the schema of the graphs.
        level: what one row stands for, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.
        target_weights: target name -> weight of its values in the loss; 1 where it is not named.

    Attributes:
        task: the kind of its predictions, which decides what metrics there are; see `Metric`.
        metrics: the metrics that are computed unless the config names others (names, or dotted
            paths); the first that there is chooses the best checkpoint.
        monitor: another metric that chooses the best checkpoint; None for the first of `metrics`.
        losses_may_be_negative: whether a row may have a loss below zero, as a log likelihood has;
            otherwise training ends at one.
        metrics_by_target: whether metrics are also given for each target, as METRIC/TARGET.
        parts: names of what `decode` tells of each target: "pred", the value, comes first; "std" is
            its standard deviation, "lower" and "upper" are the ends of an interval around it.
        extra_columns: names of what `predictions` tells beside value and probabilities; by default
            all parts but the first.
        added: the parts of a prediction that are not the head's own, see `with_parts`.
        pairs: whether a row of the readout must be a pair.
        level: as given.
        columns: the schema's columns of the targets, with their units.
        targets: names of the targets.
        target_weights: the weight of each target.

    Raises:
        ConfigError: if the schema has no such targets at that level, or a head cannot predict one
            of them; it names them all.
    """

    task: str = "regression"
    losses_may_be_negative: bool = True
    metrics_by_target: bool = True
    parts: tuple[str, ...] = ("pred",)
    pairs: bool = False
    added: tuple[str, ...] = ()

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
        """See the class."""
        return ("rmse", "mae", "mse", "r2", "pearson", "spearman")

    @property
    def monitor(self) -> str | None:
        """The loss where there are several numbers.

        It is in units of each target's deviation; a mean of errors would mix the targets' units.
        """
        return "loss" if self.task == "regression" and len(self.columns) > 1 else None

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """See the class."""
        return self.parts[1:]

    @property
    def uncertainty_tasks(self) -> tuple[str, ...]:
        """The tasks of further metrics, which judge how sure the predictions are; see `Metric`."""
        judged = {"interval": {"lower", "upper"}, "deviation": {"std"}}
        if self.task != "regression":
            return ()
        return tuple(task for task, names in judged.items() if names <= {*self.parts, *self.added})

    def with_parts(self, *names: str) -> Head:
        """The head, with the same weights, of a model whose predictions have further parts."""
        other = copy.copy(self)
        new = (name for name in names if name not in self.extra_columns)
        other.added = tuple(dict.fromkeys((*self.added, *new)))
        return other

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        """True if `auto` shall take it for some targets; asked in the order of `registry.HEADS`.

        Args:
            columns: all targets of the level.
            level: what has targets, "graph" or "node".
            pairs: whether a row is a pair.
        """
        return False

    @classmethod
    @abstractmethod
    def refuses(cls, column: Column) -> str | None:
        """The reason why it cannot predict a target, or None if it can."""

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """[num_rows, ...] the raw outputs, from the rows of the readout [num_rows, input_size]."""

    @abstractmethod
    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the loss of each row; 0, without a gradient, where nothing is measured.

        The sum of the losses of the measured targets, times `value_weights`, over the number of all
        targets. `denominator` makes a mean over measured values of it.
        """

    @abstractmethod
    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, ...] predictions: values in the targets' own units, or probabilities."""

    def predict(self, raw: Tensor) -> Predicted:
        """The output of `decode`, its parts by name."""
        decoded = self.decode(raw)
        value, *others = decoded.unbind(-1) if len(self.parts) > 1 else (decoded,)
        return Predicted(value, dict(zip(self.parts[1:], others, strict=True)))

    def learned(self, values: Tensor) -> Tensor:
        """[num_rows, num_targets] numbers as they are learnt: in a space where errors are alike."""
        return values

    def from_learned(self, values: Tensor) -> Tensor:
        """The inverse of `learned`."""
        return values

    def learned_deviation(self, values: Tensor, std: Tensor) -> Tensor:
        """[num_rows, num_targets] deviations of `values` as deviations of `learned(values)`."""
        return std

    @property
    def possible(self) -> tuple[float, float]:
        """The least and the largest number that a target can be, whatever is predicted."""
        return -math.inf, math.inf

    def target_rows(self, dag: TypedDAG) -> Tensor:
        """[num_rows, num_targets] the targets as numbers, NaN where missing, one row per raw row.

        Heads of one class per row give [num_rows] codes instead, -1 where missing.
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
        """Raises DataError for a value that cannot be learnt; every part is checked before work.

        Shape:
            targets: what `target_rows` gave
        """

    def measured(self, targets: Tensor) -> Tensor:
        """Bool, like `targets`: which of them are known."""
        return ~targets.isnan()

    def is_measured(self, targets: Tensor) -> Tensor:
        """[num_rows] bool, whether any target of a row is known."""
        known = self.measured(targets)
        return known if known.dim() == 1 else known.any(1)

    def value_weights(self, targets: Tensor) -> Tensor:
        """[num_rows, num_targets] how much each value counts in the mean loss; 0 where missing."""
        measured = self.measured(targets).reshape(len(targets), len(self.columns))
        return measured * torch.tensor(self.target_weights, device=targets.device).double()

    def denominator(
        self, targets: Tensor, graph: Tensor, times: Tensor, reduction: str = "per_graph"
    ) -> Tensor:
        """The divisor of the sum of `losses` that makes a mean over measured values of it.

        A missing value takes nothing away from those beside it: of T targets a row with one value
        has 1/T of the loss of that value, and counts 1/T here.

        Args:
            targets: what `target_rows` gave.
            graph: [num_rows] the graph of each row.
            times: [num_graphs] how often each graph counts.
            reduction: "per_node" for a mean over rows; "per_graph" for one over graphs, where the
                losses of the rows of a graph are added up: it counts once, whatever their number.
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
        """The values of numbers that predictions are compared with, and which of them are known.

        Shape:
            targets: what `target_rows` gave
            returns: [num_rows, num_targets] each, the second one bool
        """
        return targets, self.measured(targets)

    def metric_inputs(self, predicted: Predicted, targets: Tensor) -> MetricInputs:
        """target -> the predictions and targets that its metrics get, where it is measured."""
        return self.measured_rows(predicted.value, targets)

    def uncertainty_inputs(self, task: str, predicted: Predicted, targets: Tensor) -> MetricInputs:
        """The same for the metrics of one of `uncertainty_tasks`.

        A target without intervals has no rows.
        """
        parts = predicted.parts
        if task == "deviation":
            both = torch.stack([predicted.value, parts["std"]], -1)
            return self.measured_rows(both, targets)
        inputs = self.measured_rows(torch.stack([parts["lower"], parts["upper"]], -1), targets)
        there = {name: ~ends[:, 1].isinf() for name, (ends, _) in inputs.items()}
        return {n: (ends[there[n]], y[there[n]]) for n, (ends, y) in inputs.items()}

    def measured_rows(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        """target -> some part of the predictions, and the targets, where it is measured."""
        values, known = self.compared(targets)
        return {
            name: (prediction[known[:, i], i], values[known[:, i], i])
            for i, name in enumerate(self.targets)
        }

    def confusion(self, predicted: Predicted, targets: Tensor) -> dict[str, Tensor]:
        """target -> [num_classes, num_classes] (see `confusion_matrix`); empty without classes."""
        return {}

    def labels(self, column: Column) -> Sequence[Any]:
        """The classes of a target that it predicts, see `Column.classes`; empty for numbers."""
        return ()

    @property
    def table_columns(self) -> list[str]:
        """The columns of a table of predictions.

        TARGET_pred, TARGET_prob_CLASS and TARGET_EXTRA, target by target; `predictions` fills them.
        """
        columns = []
        for column in self.columns:
            columns.append(f"{column.name}_pred")
            columns += [f"{column.name}_prob_{label}" for label in self.labels(column)]
            columns += [f"{column.name}_{extra}" for extra in self.all_extra]
        return columns

    @property
    def table_types(self) -> list[type]:
        """The types of the values in `table_columns`: float, int (classes without names) or str."""
        types: list[type] = []
        for column in self.columns:
            labels = self.labels(column)
            types.append(type(labels[0]) if labels else float)
            types += [float] * len(labels)
            types += [str if extra == "limit" else float for extra in self.all_extra]
        return types

    @property
    def all_extra(self) -> tuple[str, ...]:
        """The names of all that `describe` tells beside value and probabilities."""
        return (*self.extra_columns, *self.added)

    def describe(self, predicted: Predicted) -> Predictions:
        """One `TargetPrediction` per row and target: `predictions`, and the parts in `added`."""
        rows = self.predictions(predicted)
        self._add(rows, predicted, self.added)
        return rows

    def predictions(self, predicted: Predicted) -> Predictions:
        """One `TargetPrediction` per row and target, of what the head itself says."""
        targets = self.targets
        rows = [
            {name: TargetPrediction(value) for name, value in zip(targets, values, strict=True)}
            for values in predicted.value.tolist()
        ]
        self._add(rows, predicted, self.extra_columns)
        return rows

    def _add(self, rows: Predictions, predicted: Predicted, names: Sequence[str]) -> None:
        """Adds some parts to what is told of each row and target."""
        for name in names:
            for row, values in zip(rows, self._in_words(predicted, name), strict=True):
                for told, value in zip(row.values(), values, strict=True):
                    told.extra[name] = _known(_digits(value))

    def _in_words(self, predicted: Predicted, name: str) -> list[list[Any]]:
        """Of each row and target a number or a limit."""
        part = predicted.parts[name]
        if self.task == "multiclass":  # the number is that of the likeliest class
            best = predicted.value.argmax(1, keepdim=True)
            part = part.gather(1, best)
        rows: list[list[Any]] = part.tolist()
        if name == "limit":
            return [[LIMITS[int(side)] for side in row] for row in rows]
        return rows

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        """The measured values of each row, by target, in the form of `predictions`."""
        known = self.measured(targets).tolist()
        return [
            {n: v for n, v, k in zip(self.targets, values, is_known, strict=True) if k}
            for values, is_known in zip(targets.tolist(), known, strict=True)
        ]

    def plot(self, rows: EvalRows) -> Figure | None:
        """A picture of predictions against targets for the report; None of nothing."""
        from graphfold.layers.heads.plots import scatter_plots  # loads matplotlib

        intervals = None
        if "interval" in self.uncertainty_tasks:
            intervals = self.uncertainty_inputs("interval", rows.prediction, rows.target)
        inputs = self.metric_inputs(rows.prediction, rows.target)
        return scatter_plots(self.columns, inputs, intervals)


def mlp(
    input_size: int, output_size: int, hidden_size: int | None, dropout: float
) -> nn.Sequential:
    """Dropout and a linear layer; with `hidden_size`, a hidden layer with ReLU before them."""
    for size in (input_size, hidden_size):
        if size is not None and size < 1:
            raise ConfigError(f"a layer of width {size} holds nothing. Set hidden_size from 1 on.")
    layers: list[nn.Module] = [Dropout(dropout)]
    if hidden_size is not None:
        layers += [nn.Linear(input_size, hidden_size), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden_size or input_size, output_size))
