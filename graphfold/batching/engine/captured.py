"""What a cell may not do inside the fast engine, found out before it goes wrong silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphfold.batching.cell import Cell
from graphfold.batching.engine.cell_modules import modules_of
from graphfold.batching.engine.lazy_parameters import LazyParameter
from graphfold.errors import EngineError


def refuse_captured(cell: Cell, outputs: Iterable[Tensor], known: Iterable[Tensor]) -> None:
    """Raises if the outputs depend on a tensor that gets no gradient from the engine.

    Args:
        cell: the cell that was run.
        outputs: what it returned, with the autograd graph of its group.
        known: the leaves of that graph which the engine knows.

    Raises:
        EngineError: with the name of the attribute that holds the tensor, where it has one.
    """
    allowed = {id(tensor) for tensor in known}
    for leaf in _graph_leaves(outputs):
        if id(leaf) in allowed:
            continue
        place = f"{type(cell).__name__} reads {_name(cell, leaf)} of shape {list(leaf.shape)}, "
        if isinstance(leaf, LazyParameter):
            raise EngineError(
                f"{place}where the fast engine does not see it, as in a torch.autograd.Function, "
                "so its gradient would be lost. Pass weight.view_as(weight) instead of the weight, "
                "or use engine=autograd."
            )
        raise EngineError(
            f"{place}which requires a gradient but is neither an argument nor a registered "
            "parameter read during the call, so its gradient would be lost. Register it as a "
            "parameter, pass it to the network as shared={...}, or use engine=autograd."
        )


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


def _graph_leaves(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    stack = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)


def _name(cell: Cell, leaf: Tensor) -> str:
    for prefix, module in cell.named_modules():
        for name, value in {**vars(module), **module._parameters}.items():
            if value is leaf:
                return f"'self.{prefix + '.' if prefix else ''}{name}', a tensor"
    return "a tensor"
