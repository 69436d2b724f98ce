"""Predicted: predictions for some rows; EvalRows: predictions for a split with its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Predicted:
    """The predictions for some rows: a value, and further parts by name.

    A head makes it of its raw outputs; an ensemble mixes several of them; calibration maps one to
    another, with intervals.

    The parts have the shape of `value`:

    - "std": the standard deviation of a number, or of a probability;
    - "lower", "upper": the ends of an interval around a number; infinite without an interval;
    - "limit": 1 where a number was cut off at its high limit, -1 at the low one, else 0;
    - "unlimited": the number before it was cut off; absent if no number was.
    """

    # [num_rows, num_targets] numbers in the targets' units, or probabilities of yes;
    # of several classes [num_rows, num_classes] their probabilities
    value: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.value)

    def __getitem__(self, rows: Tensor | slice) -> Predicted:
        """The predictions for some of the rows."""
        return self._map(lambda x: x[rows])

    @property
    def unlimited(self) -> Tensor:
        """The numbers before any was cut off, in the shape of `value`."""
        return self.parts.get("unlimited", self.value)

    def with_parts(self, **parts: Tensor) -> Predicted:
        """A copy with further or replaced parts."""
        return replace(self, parts={**self.parts, **parts})

    def float(self) -> Predicted:
        """A copy in single precision."""
        return self._map(lambda x: x.float() if x.is_floating_point() else x)

    def cpu(self) -> Predicted:
        """A copy on the CPU."""
        return self._map(Tensor.cpu)

    @staticmethod
    def cat(batches: Sequence[Predicted]) -> Predicted:
        """The rows of several batches of one model, one after another."""
        names = batches[0].parts
        parts = {name: torch.cat([batch.parts[name] for batch in batches]) for name in names}
        return Predicted(torch.cat([batch.value for batch in batches]), parts)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Predicted:
        parts = {name: function(part) for name, part in self.parts.items()}
        return Predicted(function(self.value), parts)


#: target -> predictions and targets, each with a row for every measured one.
MetricInputs: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EvalRows:
    """Predictions and targets; a row is a graph, a node or an output node, by the head's level."""

    prediction: Predicted  # of [num_rows]
    target: Tensor  # [num_rows, ...] from the head's `target_rows`
    loss: Tensor  # [num_rows]
    graph: Tensor  # [num_rows] position of the graph that the row belongs to
    is_root: Tensor  # [num_rows] bool, whether it is the single output node of its graph
    num_graphs: int

    def at(self, graphs: Tensor) -> EvalRows:
        """The rows of some graphs, which get new numbers; `graphs` is [num_graphs] bool."""
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
    first = [0, *accumulate(part.num_graphs for part in parts)]
    return EvalRows(
        prediction=Predicted.cat([part.prediction for part in parts]),
        target=torch.cat([part.target for part in parts]),
        loss=torch.cat([part.loss for part in parts]),
        graph=torch.cat([part.graph + n for part, n in zip(parts, first, strict=False)]),
        is_root=torch.cat([part.is_root for part in parts]),
        num_graphs=first[-1],
    )
