"""EvalRows: the predictions of a split beside its targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

#: target -> predictions and targets, each with a row for every measured one.
MetricInputs: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class EvalRows:
    """Predictions and targets, one row per graph, node or output node, as the head's level says."""

    prediction: Tensor  # [num_rows, ...] what the head's `decode` gives
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
        return EvalRows(empty.view(0, 1), codes, empty, codes, empty.bool(), 0)
    first = 0
    graphs = []
    for part in parts:
        graphs.append(part.graph + first)
        first += part.num_graphs
    return EvalRows(
        prediction=torch.cat([part.prediction for part in parts]),
        target=torch.cat([part.target for part in parts]),
        loss=torch.cat([part.loss for part in parts]),
        graph=torch.cat(graphs),
        is_root=torch.cat([part.is_root for part in parts]),
        num_graphs=first,
    )
