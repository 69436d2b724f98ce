"""The choice among the kernels of products: the fastest that is accurate enough on this machine."""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from graphfold.files import write_json
from graphfold.training.process.products import Kernel, probe_kernels

#: Relative error up to which a product counts as one of float32.
MAX_ERROR = 5e-6

#: How many times as fast as the default a kernel must be, at least, to be worth a change.
_GAIN = 1.1


def choose_products(
    wanted: str = "auto", max_error: float = MAX_ERROR, cache_dir: Path | None = None
) -> Kernel:
    """Which kernel to use on this machine, with the present number of threads.

    Args:
        wanted: a name in `KERNELS`, or "auto" for the fastest that is accurate enough.
        max_error: the largest relative error of a product.
        cache_dir: the folder that keeps what was measured; None to measure anew.

    Returns:
        The kernel: the default one, with a warning, if the wanted one is absent or not accurate
        enough here.
    """
    default = Kernel("default")
    if wanted == "default":
        return default
    found = {kernel.name: kernel for kernel in load_kernels(cache_dir)}
    good = [kernel for kernel in found.values() if kernel.error <= max_error]
    if wanted == "auto":
        fast = [kernel for kernel in good if kernel.speed >= _GAIN]
        return max(fast, key=lambda kernel: kernel.speed, default=default)
    for kernel in good:
        if kernel.name == wanted:
            return kernel
    fault = "is not to be had here"
    if wanted in found:
        fault = f"has a relative error of {found[wanted].error:.0e} here"
    warnings.warn(
        f"products={wanted}: this kernel {fault}, so PyTorch's default is used. Last digits may "
        "differ from those of a machine that has it.",
        stacklevel=2,
    )
    return default


def load_kernels(cache_dir: Path | None = None) -> list[Kernel]:
    """What was measured of each kernel of this machine: earlier, if the cache has it, or now."""
    if cache_dir is None:
        return probe_kernels()
    machine = _machine()
    digest = hashlib.sha256(json.dumps(machine).encode()).hexdigest()[:16]
    path = cache_dir / f"products-{digest}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # absent or damaged
        return [Kernel(**facts) for facts in json.loads(path.read_bytes())["kernels"]]
    kernels = probe_kernels()
    with suppress(OSError):  # a cache that cannot be written to costs a probe each time, no more
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"machine": machine, "kernels": [asdict(kernel) for kernel in kernels]})
    return kernels


def _machine() -> dict[str, Any]:
    """What speed and error of products depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    parts = (line.partition(":") for line in lines)
    cpu = {key.strip(): value.strip() for key, _, value in parts}
    return {
        "cpu": cpu.get("model name", platform.processor()),
        "flags": cpu.get("flags", cpu.get("Features", "")),  # "Features" on ARM
        "isa": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.is_available(),
    }
