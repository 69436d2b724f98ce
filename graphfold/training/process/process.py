"""Settings of the whole process, which only commands change: threads, kernel of products, memory.

Threads and kernel belong to the run: sums over other shares of the rows, or by another kernel,
differ in their last digits, and `evaluate` repeats what training printed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphfold.datasets.storage.cache import default_cache_dir
from graphfold.training.process.product_choice import MAX_ERROR, choose_products
from graphfold.training.process.products import use_products

#: Parameters of glibc's mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
#: oneDNN compiles a kernel for every shape of a product, and levels of trees have many shapes: its
#: own 1,024 are thrown away before they come again. 4,096 save 8 % of an epoch, for 150 MB.
_KERNELS_KEPT = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096"


def prepare_process(config: Mapping[str, Any]) -> str:
    """Makes this process compute as a run's config says.

    Processes that this one starts follow its number of threads.

    Args:
        config: the config of a run. Without `threads`, or with null, torch decides; without
            `products`, or with deterministic=true, its default kernel multiplies.

    Returns:
        What was chosen, in a line.
    """
    os.environ.setdefault(*_KERNELS_KEPT)  # read with the first product
    threads = config.get("threads")
    if threads is not None:
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
    wanted = "default" if config.get("deterministic") else config.get("products", "default")
    folder = config.get("data", {}).get("cache_dir")
    cache_dir = default_cache_dir() if folder is None else Path(folder)
    kernel = choose_products(wanted, config.get("product_error", MAX_ERROR), cache_dir)
    use_products(kernel.name)
    keep_memory()
    return f"threads: {torch.get_num_threads()}, products: {kernel}"


def keep_memory() -> None:
    """Keeps freed memory for the next step instead of giving it back to the system.

    glibc fetches large blocks anew each time, and every page of them costs a fault: 3 to 10 % of
    the time of a step. Elsewhere nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
