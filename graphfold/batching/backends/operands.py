"""Operands: where instructions find the values that they read, and put those that they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphfold.batching.backends.scratch import Fused, Scratch
from graphfold.batching.compiler.program import (
    ONE,
    PER_THREAD,
    SCRATCH_EDGES,
    SCRATCH_NODES,
    Key,
    Place,
)
from graphfold.batching.compiler.values import CONSTANT, NODES, Value, View

#: What an operand takes in an instruction.
OPERAND_SIZE = 7
#: Which row is read, as in native/program.h: the own one, or that of an edge's node. Otherwise, the
#: number of an array of integers that names it.
OWN_ROW, ROW_OF_NODE = 0, -1


class Operand(NamedTuple):
    """A place where an instruction reads or writes, as in native/program.h."""

    buffer: int
    offset: int
    row: int
    steps: tuple[int, ...]
    read: int = OWN_ROW

    def laid_out(self, steps: Sequence[int]) -> list[int]:
        """Its numbers in an instruction, with the steps of three dimensions."""
        return [self.buffer, self.offset, self.row, *steps, self.read]

    @property
    def of_row(self) -> list[int]:
        """The operand of an operation on whole rows."""
        return self.laid_out((0, 0, 1))


class Operands:
    """The buffers, arrays of integers and numbers of a program, numbered at first use.

    Args:
        places: values that lie in buffers of the pass.
        scratch: where other values lie.
        fused: those that lie nowhere.
    """

    def __init__(self, places: Mapping[Value, Place], scratch: Scratch, fused: Fused) -> None:
        self._places, self._scratch, self._fused = places, scratch, fused
        self.buffers: dict[tuple[int, int, int, Key | None], int] = {}
        self.indices: dict[Key, int] = {}
        self.numbers: dict[Value, int] = {}

    def of(self, view: View) -> Operand:
        """The operand of a view."""
        value, offset = view.value, view.offset
        if value in self._fused:
            source = self.fetched(value)
            return source._replace(offset=source.offset + offset, steps=view.steps)
        if value in self._places:
            place = self._places[value]
            buffer = self._buffer(place.space, place.size, 0, place.key)
            if place.space == ONE:  # one row for all
                return Operand(buffer, offset, 0, view.steps)
        elif value.literal is not None:
            buffer = self._buffer(ONE, 0, 0, ("numbers", ""))
            offset += self.numbers.setdefault(value, len(self.numbers))
        elif value.operation is CONSTANT:
            buffer = self._buffer(ONE, 0, 0, ("constant", value.name))
        else:
            space = SCRATCH_NODES if value.space == NODES else SCRATCH_EDGES
            buffer = self._buffer(space, 0, self._scratch.places[value], None)
        return Operand(buffer, offset, view.row, view.steps)

    def fetched(self, value: Value) -> Operand:
        """The operand of the rows that an operation fetches, or copies for edges."""
        if value.operation.fetched is None:
            return self.of(value.inputs[0])._replace(read=ROW_OF_NODE)
        kind, index = value.operation.fetched
        source = self.whole(kind, value.name, value.size)
        return source._replace(steps=value.view.steps, read=self.index(index))

    def whole(self, kind: str, name: str, size: int) -> Operand:
        """A buffer of rows of so many numbers that is read anywhere."""
        return Operand(self._buffer(ONE, 0, 0, (kind, name)), 0, size, ())

    def per_thread(self, kind: str, name: str, size: int) -> Operand:
        """A row of so many numbers that each thread has of its own."""
        return Operand(self._buffer(PER_THREAD, size, 0, (kind, name)), 0, 0, ())

    def index(self, kind: str, name: str = "") -> int:
        """The number of an array of integers, counted from one."""
        return self.indices.setdefault((kind, name), len(self.indices) + 1)

    def _buffer(self, space: int, size: int, start: int, key: Key | None) -> int:
        return self.buffers.setdefault((space, size, start, key), len(self.buffers))
