"""What to do with a batch that does not fit in memory: two halves."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from graphfold.batching import Batch, build_schedule
from graphfold.batching.passes import Pass
from graphfold.dag import select

#: What running out of memory raises: a GPU's error, torch's on the CPU, Python's and NumPy's.
MEMORY_ERRORS = (torch.OutOfMemoryError, RuntimeError, MemoryError)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch has no class of its own for the CPU's."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def halves(batch: Batch, passes: Sequence[Pass], policy: str) -> list[Batch]:
    """The first and the second half of a batch's graphs, planned as it was, on the same device."""
    release_memory()
    device = batch.dag.op_type.device
    dag = batch.dag.to("cpu")
    middle = (dag.num_graphs + 1) // 2
    parts = [select(dag, range(middle)), select(dag, range(middle, dag.num_graphs))]
    plans = [build_schedule(part, passes, policy, batch.schedule.is_shared) for part in parts]
    return [Batch(part, plan).to(device) for part, plan in zip(parts, plans, strict=True)]


def release_memory() -> None:
    """Gives what the failed attempt held back to the system."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
