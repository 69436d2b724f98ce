"""Scoring: all predictions of a split first, then its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphfold.batching import Batch
from graphfold.layers import Head, Model
from graphfold.training.loop.out_of_memory import MEMORY_ERRORS, halves, is_out_of_memory
from graphfold.training.scoring.metrics import (
    Metrics,
    average,
    binary_metrics,
    classification_metrics,
    mean,
    regression_metrics,
)


@dataclass(frozen=True)
class Rows:
    """Predictions and targets, one row per graph, node or output node, as the head's level says."""

    prediction: Tensor  # [num_rows, num_classes or num_targets] probabilities or values
    target: Tensor  # [num_rows] class codes, or [num_rows, num_targets] numbers
    loss: Tensor  # [num_rows]
    graph: Tensor  # [num_rows] position of the graph that the row belongs to
    is_root: Tensor  # [num_rows] bool, whether it is the single output node of its graph
    num_graphs: int

    def at(self, graphs: Tensor) -> Rows:
        """The rows of some graphs, numbered anew; `graphs` is [num_graphs] bool."""
        keep = graphs[self.graph]
        number = graphs.long().cumsum(0) - 1
        return Rows(
            self.prediction[keep],
            self.target[keep],
            self.loss[keep],
            number[self.graph[keep]],
            self.is_root[keep],
            int(graphs.sum()),
        )

    @property
    def has_roots(self) -> bool:
        """Whether every graph has one output node, its root."""
        return int(self.is_root.sum()) == self.num_graphs


@torch.no_grad()
def score(
    model: Model,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    policy: str = "depth",
) -> Rows:
    """The rows of all graphs, in order; the model is left in evaluation mode."""
    model.eval()
    return join([rows_of(model, batch.to(device), policy) for batch in batches])


def rows_of(model: Model, batch: Batch, policy: str = "depth") -> Rows:
    """What a model says of one batch, on the CPU; in halves where it does not fit in memory."""
    try:
        return _rows_of(model, batch)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error) or batch.num_graphs < 2:
            raise
    return join([rows_of(model, half, policy) for half in halves(batch, model.plan, policy)])


def gather(numbered: Sequence[tuple[int, Rows]]) -> Rows:
    """The rows of all batches of all processes, in the order of the batches' numbers."""
    shares = [list(numbered)]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        shares = [[] for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(shares, list(numbered))
    parts = sorted((pair for share in shares for pair in share), key=lambda pair: pair[0])
    return join([rows for _, rows in parts])


def _rows_of(model: Model, batch: Batch) -> Rows:
    head, dag = model.head, batch.dag
    raw = model(batch)
    target = head.target_rows(dag)
    decoded = head.decode(raw)
    single = dag.output_ptr.diff() == 1
    is_output = torch.zeros_like(dag.batch, dtype=torch.bool)
    is_output[dag.output_index] = True
    is_root = is_output & single[dag.batch]
    if head.level != "node":
        is_root = is_root[dag.output_index] if head.level == "output" else single
    return Rows(
        prediction=decoded["probabilities" if "probabilities" in decoded else "value"].cpu(),
        target=target.cpu(),
        loss=head.losses(raw, target).cpu(),
        graph=head.row_graph(dag).cpu(),
        is_root=is_root.cpu(),
        num_graphs=dag.num_graphs,
    )


def join(parts: Sequence[Rows]) -> Rows:
    """The rows of several batches, their graphs numbered one after another."""
    if not parts:
        empty = torch.empty(0)
        codes = empty.long()
        return Rows(empty.view(0, 1), codes, empty, codes, empty.bool(), 0)
    first = 0
    graphs = []
    for part in parts:
        graphs.append(part.graph + first)
        first += part.num_graphs
    return Rows(
        prediction=torch.cat([part.prediction for part in parts]),
        target=torch.cat([part.target for part in parts]),
        loss=torch.cat([part.loss for part in parts]),
        graph=torch.cat(graphs),
        is_root=torch.cat([part.is_root for part in parts]),
        num_graphs=first,
    )


def split_metrics(head: Head, rows: Rows, reduction: str = "per_graph") -> Metrics:
    """The metrics of the head's kind and level, without the prefix of the split."""
    loss: Metrics = {"loss": mean_loss(head, rows, reduction)}
    if head.kind == "classification":
        return _class_metrics(head, rows) | loss
    by_task = {}
    for index, task in enumerate(head.targets):
        known = head.measured(rows.target)[:, index]
        predicted, target = rows.prediction[known, index], rows.target[known, index]
        if head.kind == "multilabel":
            by_task[task] = binary_metrics(predicted, target.long())
        else:
            by_task[task] = regression_metrics(predicted, target)
    return average(by_task) | loss


def mean_loss(head: Head, rows: Rows, reduction: str) -> float | None:
    """The loss as in training: a mean over graphs of sums, or a mean over measured rows."""
    if reduction == "per_graph":
        return rows.loss.double().sum().item() / rows.num_graphs if rows.num_graphs else None
    return mean(rows.loss[is_measured(head, rows.target)])


def is_measured(head: Head, target: Tensor) -> Tensor:
    """[num_rows] bool, whether anything is known of a row."""
    known = head.measured(target)
    return known if known.dim() == 1 else known.any(1)


def metric_names(head: Head, has_roots: bool) -> list[str]:
    """The metrics that a head has, the one that usually chooses a checkpoint first."""
    width = getattr(head, "num_classes", len(head.targets))
    empty = torch.empty(0)
    codes = empty.long()
    target = codes if head.kind == "classification" else empty.view(0, len(head.targets))
    # Without a graph there is a root for each; one graph without a root has none.
    rows = Rows(empty.view(0, width), target, empty, codes, codes.bool(), int(not has_roots))
    names = [name for name in split_metrics(head, rows) if name != "loss"]
    first = {"regression": "rmse", "relatedness": "pearson"}.get(head.kind, names[0])
    return [*sorted(names, key=lambda name: name != first), "loss"]


def _class_metrics(head: Head, rows: Rows) -> Metrics:
    known = head.measured(rows.target)
    metrics = classification_metrics(rows.prediction[known], rows.target[known])
    if head.level == "graph":
        return metrics
    metrics = {"node_accuracy": metrics["accuracy"], "macro_f1": metrics["macro_f1"]}
    root = known & rows.is_root
    if rows.has_roots:
        metrics = _root_metrics(rows.prediction[root], rows.target[root]) | metrics
    return metrics


def _root_metrics(probability: Tensor, target: Tensor) -> Metrics:
    """Accuracy on the roots; with five classes, from very negative to very positive, binary too.

    Binary accuracy leaves neutral roots (class 2) out, as Socher et al. (2013) do: a root is
    positive if p3 + p4 > p0 + p1.
    """
    metrics = {"root_accuracy": mean(probability.argmax(1) == target)}
    if probability.shape[1] == 5:
        positive = probability[:, 3:].sum(1) > probability[:, :2].sum(1)
        clear = target != 2
        metrics["root_binary_accuracy"] = mean(positive[clear] == (target > 2)[clear])
    return metrics
