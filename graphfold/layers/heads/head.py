"""Head: from the rows of a readout to losses and predictions. The protocol that training uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphfold.dag import Column, Schema, TypedDAG
from graphfold.errors import ConfigError, did_you_mean
from graphfold.layers.dropout import Dropout


class Head(nn.Module, ABC):
    """What a model predicts, and how wrong it is.

    One row stands for a graph, a node or an output node, as the readout's `level` says. Training,
    metrics and prediction use this and nothing else of a model:

        raw = model(batch)                          # [num_rows, ...]
        targets = model.head.target_rows(batch.dag) # one row each
        losses = model.head.losses(raw, targets)    # [num_rows], 0 where nothing is measured
        graph = model.head.row_graph(batch.dag)     # [num_rows] the graph that each row belongs to
        predictions = model.head.decode(raw)        # name -> [num_rows, ...]

    Args:
        schema: the schema of the graphs.
        level: what one row stands for, "graph", "node" or "output".
        targets: names of the targets; None for all targets of that level.

    Attributes:
        kind: "classification" (one of several classes), "multilabel" (yes or no, several times),
            "regression" or "relatedness".
        pairs: whether a row of the readout must be a pair.
        level: as given.
        columns: the schema's columns of the targets, with their units.
        targets: names of the targets.

    Raises:
        ConfigError: if the schema has no such targets at that level, or a head cannot predict one
            of them; it names them all.
    """

    kind: ClassVar[str]
    pairs: ClassVar[bool] = False

    def __init__(self, schema: Schema, level: str, targets: Sequence[str] | None) -> None:
        super().__init__()
        self.level = level
        self.columns = find_targets(schema, level, targets)
        faults = [fault for fault in map(self.refuses, self.columns) if fault]
        if faults:
            raise ConfigError(
                f"{type(self).__name__} cannot predict " + " Nor can it: ".join(faults)
            )

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(column.name for column in self.columns)

    @classmethod
    @abstractmethod
    def refuses(cls, column: Column) -> str | None:
        """Why it cannot predict a target, or None if it can."""

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """[num_rows, ...] the raw outputs, from the rows of the readout [num_rows, input_size]."""

    @abstractmethod
    def measured(self, targets: Tensor) -> Tensor:
        """Bool, like `targets`: which of them are known."""

    @abstractmethod
    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        """[num_rows] the loss of each row; 0, without a gradient, where nothing is measured."""

    @abstractmethod
    def decode(self, raw: Tensor) -> dict[str, Tensor]:
        """Predictions by name, one row each, in the targets' own units.

        "class" [num_rows] and "probabilities" [num_rows, num_classes] for classification;
        "probabilities" [num_rows, num_targets] for multilabel; "value" [num_rows, num_targets] for
        regression and relatedness.
        """

    def target_rows(self, dag: TypedDAG) -> Tensor:
        """[num_rows, num_targets] the targets, aligned with the raw outputs.

        Classification gives [num_rows] codes, -1 where missing; the others numbers, NaN where
        missing.
        """
        space = "graph" if self.level == "graph" else "node"
        rows = [_as_number(dag.columns[space][column.name], column) for column in self.columns]
        stacked = torch.stack(rows, dim=1)
        return stacked[dag.output_index] if self.level == "output" else stacked

    def row_graph(self, dag: TypedDAG) -> Tensor:
        """[num_rows] the graph that each row belongs to."""
        if self.level == "graph":
            return torch.arange(dag.num_graphs, device=dag.batch.device)
        return dag.batch if self.level == "node" else dag.batch[dag.output_index]


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
            "nodes. Choose a readout of the level that has targets."
        )
    others = {column.name for column in elsewhere}
    faults = [_unknown(name, level, columns, others) for name in names if name not in columns]
    if faults:
        raise ConfigError(" ".join(faults))
    return tuple(columns[name] for name in names)


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


def _as_number(values: Tensor, column: Column) -> Tensor:
    """A target as floats, NaN where it is missing."""
    if values.is_floating_point():
        return values
    missing = values < 0 if column.missing == -1 else torch.zeros_like(values, dtype=torch.bool)
    return values.to(torch.get_default_dtype()).masked_fill(missing, float("nan"))


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(f"'{column.name}'" for column in columns) or "none"


def mlp(
    input_size: int, output_size: int, hidden_size: int | None, dropout: float
) -> nn.Sequential:
    """Dropout and a linear layer; with `hidden_size`, a hidden layer with ReLU before them."""
    layers: list[nn.Module] = [Dropout(dropout)]
    if hidden_size is not None:
        layers += [nn.Linear(input_size, hidden_size), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden_size or input_size, output_size))
