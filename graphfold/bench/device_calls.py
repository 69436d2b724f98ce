"""What a call makes a CUDA device do: the kernels that it launches, the waits in its midst."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

#: Calls of the CUDA runtime and driver that start a kernel.
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
#: Those that wait for the device.
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def launches(function: Callable[[], object], device: torch.device) -> dict[str, int]:
    """How many kernels a call launches, and how often it waits for the device; {} on a CPU."""
    if device.type != "cuda":
        return {}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        function()
        torch.cuda.synchronize(device)
    names = [event.name for event in found.events() or ()]
    return count_calls(names)


def count_calls(names: Sequence[str]) -> dict[str, int]:
    """The same from the names of what a profiler saw; the wait at its end does not count."""
    return {
        "kernel_launches": sum(name.startswith(_LAUNCHES) for name in names),
        "waits": max(0, sum(name.startswith(_WAITS) for name in names) - 1),
    }


def find_waits(function: Callable[[], object], device: torch.device) -> list[str]:
    """Where a call waits for the device in the middle of its work, "file:line" each."""
    if device.type != "cuda":
        return []
    function()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            function()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return list(dict.fromkeys(f"{w.filename}:{w.lineno}" for w in caught))
