"""Fused programs: those with kernels, checked against the cell and chosen by measurement."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from graphfold.batching.engine.programs.fusion import c_source, triton_source
from graphfold.batching.engine.programs.fusion.regions import Kernels
from graphfold.batching.engine.programs.joint import Joint, first_line
from graphfold.batching.engine.programs.program import Program
from graphfold.batching.engine.programs.trial import Trial, agrees
from graphfold.batching.kernels import products
from graphfold.batching.kernels.c_compiler import can_compile
from graphfold.batching.kernels.c_kernels import REALS
from graphfold.errors import EngineError

logger = logging.getLogger(__name__)

_WITHOUT = "Say fuse=False (model.fuse=false) to do without kernels."
#: How far the results of kernels may be from those of the cell, relative to the largest of a
#: tensor, or to one where all are smaller: another order of a sum, another exp.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
#: Kernels are refused if they fail so many times, on other numbers each. One failure may be chance:
#: where the sum that a relu cuts off is next to zero (once in four million sums), it is there for
#: one of the two and not for the other, with all of its gradient.
CHANCES = 3
#: The programs are measured with a group of so many nodes, so many times, in so many turns.
MEASURED_SIZE, MEASURED_RUNS, MEASURED_TURNS = 256, 10, 3

#: Makes a program, with kernels if it is given some, and see `make_program`.
Make = Callable[[Kernels | None, bool], Program]


def is_wanted(fuse: bool | None, device: torch.device) -> bool:
    """Whether a fused program is to be tried.

    Args:
        fuse: True for always, False for never, None for where it may be faster: on CUDA.
        device: where the program runs.

    Raises:
        EngineError: if it must be, and there are no kernels for the device, or what compiles them
            is missing.
    """
    if not fuse:
        return fuse is None and device.type == "cuda"
    if device.type not in ("cpu", "cuda"):
        raise EngineError(
            f"fuse=True writes kernels for CUDA and for CPUs, but the model is on '{device.type}'. "
            f"{_WITHOUT}"
        )
    if _takes_triton(device) and find_spec("triton") is None:
        raise EngineError(
            f"fuse=True needs Triton, which is not installed. Run pip install triton. {_WITHOUT}"
        )
    if not _takes_triton(device) and not can_compile():
        raise EngineError(
            "fuse=True needs a C compiler on a CPU, and none that works was found. Install one "
            f"(gcc or clang), or name it in the environment variable CC. {_WITHOUT}"
        )
    return True


def is_quick(device: torch.device) -> bool:
    """Whether kernels for a device are there after tenths of a second, and mostly faster.

    So they are on a CPU with a C compiler. On CUDA only a measurement can tell.
    """
    return device.type == "cpu" and not _takes_triton(device) and can_compile()


def has_kernels(fuse: bool | None, device: torch.device) -> bool:
    """Whether kernels in C are asked for, and there can be some.

    Raises:
        EngineError: if they are asked for, and what compiles them is missing.
    """
    return bool(fuse) and is_wanted(fuse, device) and is_quick(device)


def prepare_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Begins to compile what all cells on a device share, if anything."""
    if device.type == "cpu" and dtype in REALS and not _takes_triton(device):
        products.load_in_background(dtype)


def kernels_for(device: torch.device, dtype: torch.dtype) -> Kernels:
    """The kernels for a device: Triton's on CUDA, a C compiler's on a CPU.

    Raises:
        EngineError: if there is no compiler.
    """
    if _takes_triton(device):
        return Kernels(triton_source.build, packs=False)
    return Kernels(c_source.build, packs=products.are_quick(dtype))


def _takes_triton(device: torch.device) -> bool:
    """Triton's interpreter also runs on a CPU; it is slow, and shows what CUDA would compute."""
    return device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"


def is_close(one: Tensor, other: Tensor) -> bool:
    """Whether a result of a fused program is near enough to that of the cell."""
    if one.dtype not in TOLERANCE:
        return torch.equal(one, other)
    finite = one[one.isfinite()].detach().abs()
    scale = max(float(finite.max()), 1.0) if len(finite) else 1.0
    return torch.allclose(one, other, rtol=0, atol=TOLERANCE[one.dtype] * scale, equal_nan=True)


def choose(joint: Joint, plain: Program, make: Make, fuse: bool | None) -> Program:
    """The program that a cell runs as.

    Args:
        joint: the cell.
        plain: its program of one call per operation.
        make: makes another one of its kernels.
        fuse: see `is_wanted`.

    Warns if `fuse` is True, and there are no kernels for this cell or they give other numbers.
    """
    if not is_wanted(fuse, joint.device):
        return plain
    try:
        fused = make(kernels_for(joint.device, joint.dtypes[0]), True)
        if any(agrees(joint, fused, is_close) for _ in range(CHANCES)):
            return fused if fuse else _faster(plain, fused, joint)
        reason = "kernels give other numbers than the cell"
    except Exception as error:  # those of a compiler are of many kinds
        reason = first_line(error)
    message = f"{type(joint.cell).__name__} runs without kernels: {reason}."
    if fuse:
        warnings.warn(message, stacklevel=2)
    else:
        logger.info(message)
    return plain


def _faster(plain: Program, fused: Program, joint: Joint) -> Program:
    """The one that takes less time, forward and backward together."""
    trial = Trial(joint, MEASURED_SIZE)
    turns = [[_microseconds(trial, p) for p in (plain, fused)] for _ in range(MEASURED_TURNS)]
    times = [min(of_one) for of_one in zip(*turns, strict=True)]
    logger.info(
        "%s takes %.0f µs for %d nodes, %.0f µs with kernels, and runs %s them.",
        type(joint.cell).__name__,
        times[0],
        MEASURED_SIZE,
        times[1],
        "with" if times[1] < times[0] else "without",
    )
    return fused if times[1] < times[0] else plain


def _microseconds(trial: Trial, program: Program) -> float:
    """Of one run of a program."""
    trial.program(program)
    torch.cuda.synchronize(trial.device)
    start = time.perf_counter()
    for _ in range(MEASURED_RUNS):
        trial.program(program)
    torch.cuda.synchronize(trial.device)
    return (time.perf_counter() - start) / MEASURED_RUNS * 1e6
