"""Head: from the rows of a readout to losses, metrics, predictions and pictures.

Before it stand `Targets`, the columns of a schema that a head predicts, and `TargetPrediction`,
what a model says of one target, in the words of the data.
"""

from __future__ import annotations

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
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs

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
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rounds: a float32 has no more than seven digits. An infinite extra number is none."""
        if isinstance(self.value, float):
            self.value = _digits(self.value)
        if self.extra:
            self.extra = {key: _known(_digits(value)) for key, value in self.extra.items()}

    def with_extra(self, more: Mapping[str, Any]) -> TargetPrediction:
        """The same with further numbers; `dataclasses.replace` takes three times as long."""
        return TargetPrediction(self.value, self.probabilities, {**self.extra, **more})


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
    return [float(given.get(name, 1.0)) for name in names]


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


#: task of metrics -> the parts of a prediction that they judge.
_JUDGED = {"interval": ("lower", "upper"), "deviation": ("pred", "std")}


class Head(nn.Module, ABC):
    """The predictions of a model: their loss, metrics, form and picture.

    One row stands for a graph, a node or an output node, as the readout's `level` says. Nothing
    outside of a head knows what kind of head it is. Training uses

        raw = model(batch)                          # [num_rows, ...]
        targets = model.head.target_rows(batch.dag) # one row each
        losses = model.head.losses(raw, targets)    # [num_rows], 0 where nothing is measured
        graph = model.head.row_graph(batch.dag)     # [num_rows] the graph that each row belongs to

    scoring and the report

        prediction = model.head.decode(raw)         # [num_rows, ...]
        model.head.metric_inputs(prediction, targets)  # for the metrics of its `task`
        model.head.confusion(prediction, targets)      # where it predicts classes
        model.head.plot(rows)                          # a figure, or None

    and prediction

        model.head.predictions(prediction)  # a TargetPrediction per row and target
        model.head.table_columns            # the names of a table's columns

    A subclass has to write `refuses`, `forward`, `losses` and `decode`. The other methods are as
    they are for numbers: `decode` gives [num_rows, num_targets], a missing target is NaN. A head
    that tells more than one number of each target names them in `parts`; they are the last
    dimension of what `decode` gives, then: [num_rows, num_targets, num_parts].

    Args:
        schema: the schema of the graphs.
        level: what one row stands for, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.

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
        extra_columns: names of what a prediction has beside value and probabilities; by default
            all parts but the first.
        pairs: whether a row of the readout must be a pair.
        level: as given.
        columns: the schema's columns of the targets, with their units.
        targets: names of the targets.

    Raises:
        ConfigError: if the schema has no such targets at that level, or a head cannot predict one
            of them; it names them all.
    """

    task: str = "regression"
    losses_may_be_negative: bool = True
    metrics_by_target: bool = True
    parts: tuple[str, ...] = ("pred",)
    pairs: bool = False

    def __init__(self, schema: Schema, level: str, targets: Sequence[str] | None) -> None:
        super().__init__()
        self.level = level
        self.columns = find_targets(schema, level, targets)
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
        """See the class."""
        return None

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """See the class."""
        return self.parts[1:]

    @property
    def uncertainty_tasks(self) -> tuple[str, ...]:
        """The tasks of further metrics, which judge how sure the predictions are; see `Metric`."""
        if self.task != "regression":
            return ()
        return tuple(task for task, names in _JUDGED.items() if {*names} <= {*self.parts})

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
        """[num_rows] the loss of each row; 0, without a gradient, where nothing is measured."""

    @abstractmethod
    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, ...] predictions: values in the targets' own units, or probabilities."""

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """As `decode`; of a head with limits, the numbers before they are cut off there."""
        return self.decode(raw)

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
        return stacked[dag.output_index] if self.level == "output" else stacked

    def row_graph(self, dag: TypedDAG) -> Tensor:
        """[num_rows] the graph that each row belongs to."""
        if self.level == "graph":
            return torch.arange(dag.num_graphs, device=dag.batch.device)
        return dag.batch if self.level == "node" else dag.batch[dag.output_index]

    def measured(self, targets: Tensor) -> Tensor:
        """Bool, like `targets`: which of them are known."""
        return ~targets.isnan()

    def is_measured(self, targets: Tensor) -> Tensor:
        """[num_rows] bool, whether any target of a row is known."""
        known = self.measured(targets)
        return known if known.dim() == 1 else known.any(1)

    def compared(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The values of numbers that predictions are compared with, and which of them are known.

        Shape:
            targets: what `target_rows` gave
            returns: [num_rows, num_targets] each, the second one bool
        """
        return targets, self.measured(targets)

    def values(self, prediction: Tensor) -> Tensor:
        """The first part of what `decode` gave, without the others."""
        return prediction if len(self.parts) == 1 else prediction[..., 0]

    def metric_inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        """target -> the predictions and targets that its metrics get, where it is measured."""
        return self._inputs(self.values(prediction), targets)

    def uncertainty_inputs(self, task: str, prediction: Tensor, targets: Tensor) -> MetricInputs:
        """The same for the metrics of one of `uncertainty_tasks`."""
        wanted = [self.parts.index(name) for name in _JUDGED[task]]
        return self._inputs(prediction[..., wanted], targets)

    def _inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        values, known = self.compared(targets)
        return {
            name: (prediction[known[:, i], i], values[known[:, i], i])
            for i, name in enumerate(self.targets)
        }

    def confusion(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
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
            columns += [f"{column.name}_{extra}" for extra in self.extra_columns]
        return columns

    def predictions(self, prediction: Tensor) -> Predictions:
        """Turns the output of `decode` into one `TargetPrediction` per row and target."""
        if len(self.parts) == 1:
            prediction = prediction.unsqueeze(-1)
        targets, names_of_extra = self.targets, self.parts[1:]
        return [
            {
                name: TargetPrediction(value, extra=dict(zip(names_of_extra, extra, strict=True)))
                for name, (value, *extra) in zip(targets, row, strict=True)
            }
            for row in prediction.tolist()
        ]

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
