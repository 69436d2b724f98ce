"""The machine: all that a figure depends on besides the code."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from graphfold.training.process.process import prepare_process


def use_machine(threads: int, device: str = "cpu") -> dict[str, Any]:
    """Sets the threads of the whole process.

    Args:
        threads: of torch.
        device: what is measured.

    Returns:
        Further keys of every row.
    """
    prepare_process({"threads": threads})
    return {
        "cpu": _cpu(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "isa": instruction_set(),
        "torch": torch.__version__,
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
