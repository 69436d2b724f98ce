"""Batches that do not fit in memory: they are run in two halves."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from graphfold.batching import Batch
from graphfold.dag import select

#: What running out of memory raises: a GPU's error, torch's on the CPU, Python's and NumPy's.
MEMORY_ERRORS = (torch.OutOfMemoryError, RuntimeError, MemoryError)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out; torch has no class of its own for the CPU's."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def halves(batch: Batch, plan: Callable[..., Batch], policy: str) -> list[Batch]:
    """The first and the second half of a batch's graphs, planned as it was, on the same device.

    Args:
        batch: the batch.
        plan: `Model.plan` of the model.
        policy: how it was planned.
    """
    release_memory()
    device = batch.dag.op_type.device
    dag = batch.dag.to("cpu")
    middle = (dag.num_graphs + 1) // 2
    parts = [select(dag, range(middle)), select(dag, range(middle, dag.num_graphs))]
    return [plan(part, policy, batch.schedule.is_shared).to(device) for part in parts]


def release_memory() -> None:
    """Gives what the failed attempt held back to the system."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
