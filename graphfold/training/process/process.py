"""Settings of the whole process: threads and memory, which only commands change; algorithms.

Threads belong to the run: sums over other shares of the rows differ in their last digits, and
`evaluate` repeats what training printed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

#: Parameters of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def prepare_process(config: Mapping[str, Any]) -> str:
    """Makes this process compute as a run's config says.

    Processes that this one starts follow its number of threads.

    Args:
        config: the config of a run. Without `threads`, or with null, torch decides.

    Returns:
        What was chosen, in a line.
    """
    threads = config.get("threads")
    if threads is not None:
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
    keep_memory()
    return f"threads: {torch.get_num_threads()}"


def keep_memory() -> None:
    """Keeps freed memory for the next step instead of giving it back to the system.

    glibc fetches large blocks anew each time, and every page of them costs a fault: 3 to 10 % of
    the time of a step. Elsewhere nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def deterministic_algorithms(are_wanted: bool) -> Iterator[None]:
    """Within, torch takes only algorithms that give the same bits every time, if that is wanted."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if are_wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS when it begins
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)
