"""The machine that a benchmark runs on, and the instruction set that libraries are kept to.

So one machine shows how fast another would be. Each library reads a variable of the environment
when it is loaded; graphfold's kernels follow torch.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError

#: Every library uses what it finds.
NATIVE = "native"

#: Instruction set -> what torch, oneDNN, MKL and NumPy call it.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        # Its versions have different names; it passes over those that it does not know.
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_ICL AVX512_SPR",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}

#: Instruction set -> the flags of a CPU that has it.
FLAGS = {
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma"},
}

#: Where Linux lists the flags.
CPU_INFO = Path("/proc/cpuinfo")


def keep_to(name: str) -> None:
    """Sets what the libraries read; before torch is loaded, or it does not.

    Args:
        name: `NATIVE`, which changes nothing, or a key of `VARIABLES`.

    Raises:
        ConfigError: if the CPU lacks the instructions, or torch is loaded already.
    """
    if name == NATIVE:
        return
    missing = FLAGS[name] - _cpu_flags()
    if missing:
        raise ConfigError(
            f"--isa is '{name}', but this CPU does not have {', '.join(sorted(missing))}. Use "
            f"another one, or {NATIVE}."
        )
    if "torch" in sys.modules:
        raise ConfigError(
            f"--isa is '{name}', but torch is loaded already and has settled what it uses. Run "
            "python -m benchmarks in a process of its own."
        )
    os.environ.update(VARIABLES[name])


def _cpu_flags() -> set[str]:
    """The flags of this machine's CPU; none where they cannot be read."""
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.is_file() else []
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return set(flags[0]) if flags else set()


def machine_facts(device: str) -> dict[str, Any]:
    """The keys of a row that describe the machine; "isa" is the one that torch's kernels use."""
    import torch

    return {
        "cpu": _cpu(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "isa": str(torch.backends.cpu.get_cpu_capability()).lower(),
        "torch": torch.__version__,
    }


def _cpu() -> str:
    """The name of the processor."""
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
