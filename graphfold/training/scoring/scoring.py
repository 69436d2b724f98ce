"""Scoring: all predictions of a split, beside its targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from graphfold.batching import Batch
from graphfold.layers import Model
from graphfold.layers.heads.eval_rows import EvalRows, join
from graphfold.training.loop.out_of_memory import MEMORY_ERRORS, halves, is_out_of_memory


@torch.no_grad()
def score(
    model: Model,
    batches: Iterable[Batch],
    device: torch.device | str = "cpu",
    policy: str = "depth",
) -> EvalRows:
    """The rows of all graphs, in order; the model is left in evaluation mode."""
    model.eval()
    return join([rows_of(model, batch.to(device), policy) for batch in batches])


def rows_of(model: Model, batch: Batch, policy: str = "depth") -> EvalRows:
    """The rows of one batch, on the CPU; in halves where it does not fit in memory."""
    try:
        return _rows_of(model, batch)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error) or batch.num_graphs < 2:
            raise
    return join([rows_of(model, half, policy) for half in halves(batch, model.plan, policy)])


def gather(numbered: Sequence[tuple[int, EvalRows]]) -> EvalRows:
    """The rows of all batches of all processes, in the order of the batches' numbers."""
    shares = [list(numbered)]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        shares = [[] for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(shares, list(numbered))
    parts = sorted((pair for share in shares for pair in share), key=lambda pair: pair[0])
    return join([rows for _, rows in parts])


def _rows_of(model: Model, batch: Batch) -> EvalRows:
    head, dag = model.head, batch.dag
    raw = model(batch)
    target = head.target_rows(dag)
    single = dag.output_ptr.diff() == 1
    is_output = torch.zeros_like(dag.batch, dtype=torch.bool)
    is_output[dag.output_index] = True
    is_root = is_output & single[dag.batch]
    if head.level != "node":
        is_root = is_root[dag.output_index] if head.level == "output" else single
    return EvalRows(
        prediction=head.decode(raw).cpu(),
        target=target.cpu(),
        loss=head.losses(raw, target).cpu(),
        graph=head.row_graph(dag).cpu(),
        is_root=is_root.cpu(),
        num_graphs=dag.num_graphs,
    )
