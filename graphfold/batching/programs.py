"""Which cells run as programs: found out while they run, and remembered with the cell."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.pass_inputs import PassInputs
from graphfold.batching.program import Program, Slot
from graphfold.batching.tape import TapeReader
from graphfold.batching.trace import Joint, Untraceable, trace

logger = logging.getLogger(__name__)

_PLAIN = (bool, int, float, str, type(None), torch.dtype)

#: Cell -> what it is like -> its program, or why there is none, or how many groups it has run.
_KNOWN: WeakKeyDictionary[Cell, dict[Hashable, Program | Untraceable | int]] = WeakKeyDictionary()


class CellPrograms:
    """The program of one cell in one pass, if it has one.

    A cell is traced once it has run enough groups for that to pay, and again if anything changes
    that its code may depend on: its mode, the values of its attributes, the kinds of its inputs.

    Args:
        cell: the cell.
        op_type: the type of its nodes.
        inputs: the pass.
        differentiate: whether the pass will be differentiated.
    """

    def __init__(self, cell: Cell, op_type: int, inputs: PassInputs, differentiate: bool) -> None:
        self._cell = cell
        self._op_type = op_type
        self._x = inputs.x[op_type]
        self._inputs = inputs
        self._differentiate = differentiate
        self._known = _KNOWN.setdefault(cell, {})
        self._key = self._find_key() if inputs.trace_after is not None else None
        found = self._known.get(self._key)
        self.program = found if isinstance(found, Program) else None
        self._count = 0
        self._reader: TapeReader | None = None

    def has_run(self, reader: TapeReader) -> None:
        """Counts a group that the cell ran itself."""
        self._count += 1
        self._reader = reader

    def finish(self) -> None:
        """After the pass, when the cell has its own parameters: traces it, if it ran enough."""
        found, limit = self._known.get(self._key, 0), self._inputs.trace_after
        if limit is None or self._key is None or not isinstance(found, int) or not self._count:
            return
        self._known[self._key] = found + self._count
        if found + self._count < limit or self._reader is None:
            return
        try:
            slots = list(self._slots(self._reader))
            dtypes = [self._inputs.dtype(name) for name in self._cell.fields]
            self._known[self._key] = trace(
                Joint(self._cell, slots, self._inputs.kernel, self._differentiate, dtypes)
            )
        except Untraceable as reason:
            logger.info("%s runs as it is: %s.", type(self._cell).__name__, reason)
            self._known[self._key] = reason

    def _slots(self, reader: TapeReader) -> Iterator[Slot]:
        """What the cell read, and what it may read of x and of the edges."""
        for name, value in parts(self._x):
            yield Slot("x", name, value.detach(), "node", self._wants_grad(value))
        for name, value in self._inputs.edge.items():
            yield Slot("edge", name, value.detach(), "edge", self._wants_grad(value))
        for (how, name), value in reader.seen.items():
            per = {"rows": "edge", "parent": "edge", "child_count": "edge", "ptr": "ptr"}
            like, kind = value.detach(), per.get(how, "node")
            if how == "rows" and self._cell.arity is not None:
                how, kind = "stack", "node"
                like = like.view(-1, self._cell.arity, like.shape[1])
            yield Slot(how, name, like, kind, self._differentiate and like.is_floating_point())

    def _wants_grad(self, value: Tensor) -> bool:
        return self._differentiate and value.requires_grad

    def _find_key(self) -> Hashable:
        """All that the code of a trace may depend on; None if it cannot be told."""
        inputs, cell = self._inputs, self._cell
        if inputs.shared or torch.is_autocast_enabled(inputs.device.type):
            return None
        modules = list(cell.modules())
        if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules):
            return None
        state = {**inputs.given, **dict.fromkeys(inputs.fields)}
        return (
            self._differentiate,
            inputs.device,
            inputs.kernel,
            tuple((id(p), p.dtype, p.requires_grad) for p in inputs.parameters[self._op_type]),
            tuple((name, _kind(value)) for name, value in parts(self._x)),
            tuple((name, _kind(value)) for name, value in inputs.edge.items()),
            tuple((name, inputs.dtype(name)) for name in state),
            tuple(_attributes(module) for module in modules),
        )


def parts(x: NodeInput) -> list[tuple[str, Tensor]]:
    """The parts of a node input by name; one tensor alone has no name."""
    return [("", x)] if isinstance(x, Tensor) else list(x.items())


def _kind(value: Tensor) -> Hashable:
    return value.shape[1:], value.dtype, value.requires_grad


def _attributes(module: torch.nn.Module) -> Hashable:
    """The values of a module's own attributes, as far as they have some; else which they are."""
    return tuple(
        (name, value if isinstance(value, _PLAIN) else _frozen(value))
        for name, value in vars(module).items()
        if not name.startswith("_")
    )


def _frozen(value: Any) -> Hashable:
    items = value.values() if isinstance(value, dict) else value
    if isinstance(value, (tuple, list, dict)) and all(isinstance(v, _PLAIN) for v in items):
        return repr(value)
    return id(value)
