"""Refusals of what no cell may do while groups run: random numbers, statistics over a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from graphfold.batching.cell import Cell
from graphfold.batching.engine.pass_inputs import modules_of
from graphfold.errors import EngineError

CHANGED_BY_GROUP = (
    "in forward, group by group, so its value would depend on the schedule. Use a module without "
    "running statistics (LayerNorm), or move it to before, after or rounds of message passing."
)
NORMALISED_BY_GROUP = (
    "normalises over the nodes of a group in forward (BatchNorm without running statistics), so a "
    "node's state would depend on the schedule and on other graphs. Use LayerNorm, or move it to "
    "before, after or rounds of message passing."
)


@contextmanager
def refuse_random(what: str, device: torch.device, why: str) -> Iterator[None]:
    """Raises if the block draws from torch's generator of the CPU or of `device`.

    Generators of one's own, of torch, numpy or Python, are not seen.

    Args:
        what: what the block runs, for the message.
        device: where the block computes.
        why: what is wrong with that, and what to do.

    Raises:
        EngineError: if a random number was drawn.
    """
    before, drawn = torch.get_rng_state(), _drawn(device)
    yield
    if _drawn(device) != drawn or not torch.equal(torch.get_rng_state(), before):
        raise EngineError(f"{what} drew random numbers, but {why}")


def _drawn(device: torch.device) -> tuple[int, int] | None:
    """The seed of a GPU's generator and the count of its draws; None where neither can be read."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return None  # a CUDA graph that is being captured keeps its generators to itself
    number = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[number]
    return generator.initial_seed(), generator.get_offset()


@contextmanager
def refuse_changed_buffers(cells: Iterable[Cell], why: str) -> Iterator[None]:
    """Raises if modules of cells change their buffers in training while the block runs.

    Args:
        cells: what the block runs.
        why: when it does so, what is wrong with that, and what to do.

    Raises:
        EngineError: with the name of the buffer.
    """
    if torch.is_inference_mode_enabled():
        yield
        return
    before = [
        (cell, module, name, buffer, buffer._version)
        for cell in cells
        if cell.training
        for module in modules_of(cell)
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    yield
    for cell, module, name, buffer, version in before:
        if module._buffers.get(name) is not buffer or buffer._version != version:
            place = next(prefix for prefix, m in cell.named_modules() if m is module)
            full = f"{place}.{name}" if place else name
            raise EngineError(f"{type(cell).__name__} changes its buffer '{full}' {why}")


@contextmanager
def refuse_group_statistics(cell: Cell) -> Iterator[None]:
    """Raises if a cell takes or keeps statistics over a group while the block runs.

    Raises:
        EngineError: if it changes a buffer in training, or normalises over its rows.
    """
    with refuse_changed_buffers([cell], CHANGED_BY_GROUP), _RefuseBatchNorm(cell):
        yield


class _RefuseBatchNorm(TorchFunctionMode):
    """Inside, batch normalisation raises where it has no running statistics.

    In training that is the only kind which leaves no trace in a buffer, and in evaluation the only
    kind which looks at other rows.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self._cell = cell

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.batch_norm and args[1] is None:
            raise EngineError(f"{type(self._cell).__name__} {NORMALISED_BY_GROUP}")
        return func(*args, **(kwargs or {}))
