"""Which cells run as programs: found out while they run, and remembered with the cell."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphfold.batching.cell import Cell
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.programs.cell_key import cell_key
from graphfold.batching.engine.programs.fusion.choice import is_wanted
from graphfold.batching.engine.programs.joint import Joint, Untraceable
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.engine.programs.trace import trace
from graphfold.batching.engine.tape import TapeReader

logger = logging.getLogger(__name__)

#: What is remembered of one cell: training, evaluation, and little more. A cell that changes with
#: every batch would gather programs without end.
MAX_KNOWN = 5

#: A program saves a tenth of a millisecond per group, and as much per so many nodes.
NODES_PER_GROUP = 100

#: Cell -> what it is like -> its program, or how many groups it has run, or None for no program.
_KNOWN: WeakKeyDictionary[Cell, dict[Hashable, Program | int | None]] = WeakKeyDictionary()


class CellPrograms:
    """The program of one cell in one pass, if it has one.

    A cell is traced once it has run enough groups for that to pay, and again if anything changes
    that its code may depend on: its mode, the values of its attributes, the kinds of its inputs.

    Args:
        cell: the cell.
        op_type: the type of its nodes.
        inputs: the pass.
        differentiate: whether the pass will be differentiated.
        of_pass: see `pass_key`.
    """

    def __init__(
        self,
        cell: Cell,
        op_type: int,
        inputs: PassInputs,
        differentiate: bool,
        of_pass: Hashable,
    ) -> None:
        self._cell = cell
        self._op_type = op_type
        self._x = inputs.x[op_type]
        self._inputs = inputs
        self._differentiate = differentiate
        self._known = _KNOWN.setdefault(cell, {})
        self._key = None if of_pass is None else self._find_key(of_pass)
        if inputs.fuse and self._key not in self._known:
            is_wanted(inputs.fuse, inputs.device)  # says so now if it cannot be
        found = self._known.pop(self._key, 0)
        if found != 0:  # the one used last is forgotten last
            self._known[self._key] = found
        self.program = found if isinstance(found, Program) else None
        self._count = 0
        self._reader: TapeReader | None = None

    def has_run(self, reader: TapeReader, size: int) -> None:
        """Counts a group of so many nodes that the cell ran itself."""
        self._count += 1 + size // NODES_PER_GROUP
        self._reader = reader

    def finish(self) -> bool:
        """After the pass, when the cell has its own parameters: traces it, if it ran enough.

        Returns:
            Whether there is a program now.
        """
        found, limit = self._known.get(self._key, 0), self._inputs.trace_after
        if limit is None or self._key is None or not isinstance(found, int) or not self._count:
            return False
        while len(self._known) >= MAX_KNOWN and self._key not in self._known:
            del self._known[next(iter(self._known))]
        self._known[self._key] = found + self._count
        is_enough = bool(self._inputs.fuse) or found + self._count >= limit
        if is_enough and self._reader is not None:
            self._trace(list(self._slots(self._reader)))
        return isinstance(self._known[self._key], Program)

    def _trace(self, slots: list[Slot]) -> None:
        if any(slot.like.numel() == 0 and not slot.like.is_floating_point() for slot in slots):
            return  # there are no codes to try it with; a later batch may have some
        dtypes = [self._inputs.dtype(name) for name in self._cell.fields]
        joint = Joint(self._cell, slots, self._inputs.kernel, self._differentiate, dtypes)
        try:
            self._known[self._key] = trace(joint, self._inputs.fuse)
        except Untraceable as reason:
            logger.info("%s runs as it is: %s.", type(self._cell).__name__, reason)
            self._known[self._key] = None

    def _slots(self, reader: TapeReader) -> Iterator[Slot]:
        """What the cell read, and what it may read of x and of the edges."""
        arity = self._cell.arity
        per_edge = "edge" if arity is None else "child"
        for name, value in parts(self._x):
            yield Slot("x", name, value.detach(), "node", self._wants_grad(value))
        for name, value in self._inputs.edge.items():
            if arity != 0:
                yield Slot("edge", name, value.detach(), per_edge, self._wants_grad(value))
        for (how, name), value in reader.seen.items():
            per = {"rows": per_edge, "parent": per_edge, "child_count": per_edge, "ptr": "ptr"}
            wants = self._differentiate and value.is_floating_point()
            if how == "previous":
                wants = self._wants_grad(self._inputs.given[name])
            yield Slot(how, name, value.detach(), per.get(how, "node"), wants)

    def _wants_grad(self, value: Tensor) -> bool:
        return self._differentiate and value.requires_grad

    def _find_key(self, of_pass: Hashable) -> Hashable:
        """All that the code of a trace may depend on; None if it cannot be told."""
        own = cell_key(self._inputs.modules[self._op_type])
        of_x = tuple([(name, _kind(value)) for name, value in parts(self._x)])
        return None if own is None else (of_pass, of_x, own)


def pass_key(inputs: PassInputs, differentiate: bool) -> Hashable:
    """What the code of traces may depend on, apart from the cells and their inputs.

    None if no cell can be traced in this pass, or none shall be.
    """
    autocast = torch.is_autocast_enabled(inputs.device.type)
    if inputs.trace_after is None or inputs.shared or autocast:
        return None
    state = {name: value.shape[1] for name, value in inputs.given.items()} | inputs.fields
    return (
        differentiate,
        inputs.device,
        inputs.kernel,
        inputs.fuse,
        inputs.recompute,  # which random numbers do not go with
        tuple([(name, _kind(value)) for name, value in inputs.edge.items()]),
        tuple([(name, width, inputs.dtype(name)) for name, width in state.items()]),
        tuple([(name, value.requires_grad) for name, value in inputs.given.items()]),
    )


def _kind(value: Tensor) -> Hashable:
    return value.shape[1:], value.dtype, value.requires_grad
