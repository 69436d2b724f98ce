"""Predicted: what a model predicts of some rows; EvalRows: that of a split beside its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Predicted:
    """The predictions of some rows: a value, and by name what is known beside it.

    A head makes it of its raw outputs; an ensemble takes several and gives their mixture; intervals
    and calibration take one and give another.

    `parts` are of the shape of `value`, if nothing else is said:

    - "std": the standard deviation of a number, or of a probability;
    - "lower", "upper": the ends of an interval around a number; "upper" is infinite without one;
    - "limit": 1 where a number was cut off at its high limit, -1 at the low one, else 0;
    - "unlimited": the number before it was cut off; absent if no number is.
    """

    # [num_rows, num_targets] numbers in the targets' units, or probabilities of yes;
    # of several classes [num_rows, num_classes] their probabilities
    value: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.value)

    def __getitem__(self, rows: Tensor | slice) -> Predicted:
        """Some of the rows."""
        return self._map(lambda x: x[rows])

    @property
    def unlimited(self) -> Tensor:
        """Like `value`: the numbers before any was cut off."""
        return self.parts.get("unlimited", self.value)

    def with_parts(self, **parts: Tensor) -> Predicted:
        """The same with further parts, or others of the same names."""
        return replace(self, parts={**self.parts, **parts})

    def float(self) -> Predicted:
        """The same, its numbers in single precision."""
        return self._map(lambda x: x.float() if x.is_floating_point() else x)

    def cpu(self) -> Predicted:
        """The same on the CPU."""
        return self._map(Tensor.cpu)

    @staticmethod
    def cat(batches: Sequence[Predicted]) -> Predicted:
        """The rows of several batches, one after another; of one model, so of the same parts."""
        first, *_ = batches
        parts = {name: torch.cat([own.parts[name] for own in batches]) for name in first.parts}
        return Predicted(torch.cat([own.value for own in batches]), parts)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Predicted:
        parts = {name: function(part) for name, part in self.parts.items()}
        return Predicted(function(self.value), parts)


#: target -> predictions and targets, each with a row for every measured one.
MetricInputs: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EvalRows:
    """Predictions and targets, one row per graph, node or output node, as the head's level says."""

    prediction: Predicted  # of [num_rows]
    target: Tensor  # [num_rows, ...] what the head's `target_rows` gives
    loss: Tensor  # [num_rows]
    graph: Tensor  # [num_rows] position of the graph that the row belongs to
    is_root: Tensor  # [num_rows] bool, whether it is the single output node of its graph
    num_graphs: int

    def at(self, graphs: Tensor) -> EvalRows:
        """The rows of some graphs, numbered anew; `graphs` is [num_graphs] bool."""
        keep = graphs[self.graph]
        number = graphs.long().cumsum(0) - 1
        return EvalRows(
            self.prediction[keep],
            self.target[keep],
            self.loss[keep],
            number[self.graph[keep]],
            self.is_root[keep],
            int(graphs.sum()),
        )

    @property
    def has_roots(self) -> bool:
        """True if every graph has one output node, its root."""
        return int(self.is_root.sum()) == self.num_graphs


def join(parts: Sequence[EvalRows]) -> EvalRows:
    """The rows of several batches, their graphs numbered one after another."""
    if not parts:
        empty = torch.empty(0)
        codes = empty.long()
        return EvalRows(Predicted(empty.view(0, 1)), codes, empty, codes, empty.bool(), 0)
    first = 0
    graphs = []
    for part in parts:
        graphs.append(part.graph + first)
        first += part.num_graphs
    return EvalRows(
        prediction=Predicted.cat([part.prediction for part in parts]),
        target=torch.cat([part.target for part in parts]),
        loss=torch.cat([part.loss for part in parts]),
        graph=torch.cat(graphs),
        is_root=torch.cat([part.is_root for part in parts]),
        num_graphs=first,
    )
