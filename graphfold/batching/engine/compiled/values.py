"""Values of a traced cell: what it computes for every node or edge, and views of that.

A cell is a graph of `Value`s. Each has memory of its own, one contiguous row for every node or edge
of a block; or, if it is `whole`, one row for all. A `View` only arranges a value: slices, reshapes
and expanded dimensions cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

#: What the rows of a value belong to; of a group or the whole there is one row.
NODES, EDGES, GROUP, WHOLE = "nodes", "edges", "group", "whole"


class Untraceable(Exception):
    """A cell that cannot be compiled, with the reason."""


@dataclass(eq=False)
class Value:
    """One step of a cell.

    Args:
        operation: its name: one of the native operations, or of `SOURCES`.
        space: NODES, EDGES, GROUP or WHOLE.
        shape: of one row.
        inputs: what it is computed from.
        name: of a source, the field, column or part of x that it is; of a group, its own.
        number: of a constant, which; of a filled value, what with.
    """

    operation: str
    space: str
    shape: tuple[int, ...]
    inputs: tuple[View, ...] = ()
    name: str = ""
    number: Any = None

    @property
    def size(self) -> int:
        """The number of numbers of a row."""
        return math.prod(self.shape)

    @property
    def view(self) -> View:
        """All of it."""
        row = 0 if self.space in (GROUP, WHOLE) else self.size
        return View(self, self.space, self.shape, contiguous(self.shape), 0, row)


#: Operations that compute nothing: what a cell is given.
X, EDGE, PREVIOUS, CONSTANT = "x", "edge", "previous", "constant"
SOURCES = (X, EDGE, PREVIOUS, CONSTANT)
#: The mean over all nodes of a group.
MEAN_OF_GROUP = "mean_of_group"
#: Operations that fetch rows from where other nodes, or tables, have them.
FETCHES = ("gather", "gather_sum", "gather_weighted", "gather_previous", "look_up")


@dataclass(frozen=True, eq=False)
class View:
    """A value, arranged.

    Args:
        value: what it looks at.
        space: what its rows belong to. With a fixed number of children, their rows side by side are
            a row of the node.
        shape: of one row.
        steps: from one number to the next in each dimension.
        offset: of the first number in a row.
        row: from one row to the next.
    """

    value: Value
    space: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int
    row: int

    def arranged(
        self, shape: Sequence[int], steps: Sequence[int], offset: int | None = None
    ) -> Self:
        """The same value in another arrangement."""
        offset = self.offset if offset is None else offset
        return type(self)(self.value, self.space, tuple(shape), tuple(steps), offset, self.row)

    @property
    def is_contiguous(self) -> bool:
        """True if the numbers of a row lie side by side."""
        pairs = zip(self.shape, self.steps, contiguous(self.shape), strict=True)
        return all(size == 1 or step == want for size, step, want in pairs)

    @property
    def is_all(self) -> bool:
        """True if it is all of its value, as it lies."""
        size = math.prod(self.shape)
        rows = self.row == size or self.space == WHOLE
        whole = size == self.value.size or (self.space != self.value.space and rows)
        return self.offset == 0 and self.is_contiguous and rows and whole

    def expanded(self, shape: Sequence[int]) -> Self:
        """Stretched to a shape, as torch does; a whole value may have a leading 1 for its rows."""
        own, steps = self.shape, self.steps
        while self.space == WHOLE and len(own) > len(shape) and own[0] == 1:
            own, steps = own[1:], steps[1:]
        missing = len(shape) - len(own)
        if missing < 0:
            raise Untraceable("it stretches a tensor to fewer dimensions")
        sizes = zip(shape[missing:], own, steps, strict=True)
        new = [0 if size == 1 and wanted != 1 else step for wanted, size, step in sizes]
        return self.arranged(shape, [*[0] * missing, *new])

    def reshaped(self, shape: Sequence[int]) -> Self | None:
        """The same numbers in another shape; None if they do not lie so."""
        steps = _reshaped_steps(self.shape, self.steps, shape)
        return None if steps is None else self.arranged(shape, steps)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The steps of a tensor whose numbers lie side by side."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def _reshaped_steps(
    old: Sequence[int], steps: Sequence[int], new: Sequence[int]
) -> list[int] | None:
    """Steps for another shape of the same numbers, as in `torch.Tensor.view`."""
    if 0 in old:
        return list(contiguous(new))
    dims = [(size, step) for size, step in zip(old, steps, strict=True) if size != 1]
    found: list[int] = []
    chunk: tuple[int, int] | None = None  # (numbers left, step of the innermost) of merged dims
    for size in reversed(new):
        if size == 1:
            found.append(1)
            continue
        if chunk is None or chunk[0] == 1:
            if not dims:
                return None
            length, step = dims.pop()
            while dims and dims[-1][1] == length * step:
                length *= dims.pop()[0]
            chunk = length, step
        if chunk[0] % size:
            return None
        found.append(chunk[1])
        chunk = chunk[0] // size, chunk[1] * size
    return found[::-1]
