"""Programs: what one direction of a cell computes, and where that lies."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

#: What lies in a buffer of the pass: a kind and a name.
Key: TypeAlias = tuple[str, str]
#: Op type, or None for all types, and what it is there.
Named: TypeAlias = tuple[int | None, Key]

#: What lies in scratch memory.
SCRATCH: Key = "scratch", ""

#: What a buffer has rows for: the nodes or edges of a block, all rows or edges of the plan, nothing
#: (there is one row for all), a thread, as in native/program.h; or the rows or edges of a type.
SCRATCH_NODES, SCRATCH_EDGES, ROWS, ALL_EDGES, ONE, PER_THREAD, TYPE_ROWS, TYPE_EDGES = range(8)


class Place(NamedTuple):
    """A buffer of the pass.

    Args:
        key: what lies there.
        space: what it has rows for.
        size: how many numbers a row has; of a value of nodes that lies there by edges, those of an
            edge.
    """

    key: Key
    space: int
    size: int


class Rows(NamedTuple):
    """One factor of the gradient of a weight: rows in a buffer of the pass.

    Args:
        key: the buffer; of children where they lie, ("read", field).
        offset: of the first number.
        row: from one row to the next.
        of_edges: whether there is a row for each edge of the type, or for each node.
        parts: how many children a row consists of, where they lie apart; 0 if it lies in one piece.
    """

    key: Key
    offset: int
    row: int
    of_edges: bool
    parts: int = 0


class WeightGradient(NamedTuple):
    """The gradient of a weight, see `Gradients.products`, and of a bias: numbers of constants."""

    weight: int
    bias: int | None
    x: Rows
    grad: Rows
    is_transposed: bool


class Program(Protocol):
    """The program of one direction of a cell, written by a backend."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """The tensors of the memory of a pass that it reads and writes."""

    @property
    def read_constants(self) -> frozenset[Key]:
        """The constants that a program reads in place, as dense memory."""
