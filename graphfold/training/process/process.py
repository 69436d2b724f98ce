"""Settings of the whole process: threads and memory, random generators, deterministic algorithms.

Only commands change threads and memory. Threads belong to the run: sums over other shares of the
rows differ in their last digits, and `evaluate` repeats what training printed.
"""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

#: Parameters of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def prepare_process(threads: int | None) -> str:
    """Sets the threads and the memory of this process for a run.

    Processes that this one starts follow its number of threads.

    Args:
        threads: the number of threads; None lets torch decide.

    Returns:
        A line that names the number of threads.
    """
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


def seed_generators(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def member_seed(seed: int, member: int) -> int:
    """The seed of a member of an ensemble; the first member has the seed of the run.

    The other seeds are far apart, so that runs with neighbouring seeds share no member.
    """
    drawn = np.random.SeedSequence([seed, member]).generate_state(1)
    return seed if member == 0 else int(drawn[0])


def capture_generators() -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and every GPU's generator."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_generators(state: dict[str, Any]) -> None:
    """Puts every generator where `capture_generators` found it."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    rest = (numpy["position"], numpy["has_gauss"], numpy["cached"])
    np.random.set_state((numpy["name"], keys, *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
