"""What a figure depends on besides the code: machine, instructions, torch, product kernels."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from graphfold.errors import ConfigError, did_you_mean
from graphfold.training.process.process import prepare_process
from graphfold.training.process.products import KERNELS, products_in_use

AUTO = "auto"


def use_machine(threads: int, products: str, device: str = "cpu") -> dict[str, Any]:
    """Sets threads and product kernels for the whole process.

    Args:
        threads: of torch.
        products: the kernels of matrix products: a name, or "auto" for the fastest that is as
            accurate as single precision.
        device: what is measured.

    Returns:
        Further keys of every row.

    Raises:
        ConfigError: if there are no such kernels.
    """
    names = [AUTO, *KERNELS]
    if products not in names:
        raise ConfigError(
            f"--products is '{products}'.{did_you_mean(products, names)} Use one of "
            f"{', '.join(names)}."
        )
    prepare_process({"threads": threads, "products": products})
    return {
        "cpu": _cpu(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "isa": instruction_set(),
        "torch": torch.__version__,
        "products": products_in_use(),
    }


def instruction_set() -> str:
    """The instruction set that torch's kernels use: "avx2", "avx512", or another of its names."""
    return str(torch.backends.cpu.get_cpu_capability()).lower()


def _cpu() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
