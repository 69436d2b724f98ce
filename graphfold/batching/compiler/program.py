"""Program: the instructions of one direction of a cell, as native/program.h lays them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from torch import Tensor

#: What lies in a buffer of the pass: a kind and a name.
Key: TypeAlias = tuple[str, str]

#: What lies in scratch memory.
SCRATCH: Key = "scratch", ""

#: Where the rows of a buffer are counted from, as in native/program.h.
SCRATCH_NODES, SCRATCH_EDGES, ROWS, TYPE_ROWS, ALL_EDGES, TYPE_EDGES, ONE, PER_THREAD = range(8)


class Place(NamedTuple):
    """A buffer of the pass.

    Args:
        key: what lies there.
        space: where its rows are counted from.
        size: how many numbers a row has; of a value of nodes that lies there by edges, those of an
            edge.
    """

    key: Key
    space: int
    size: int


class Weight(NamedTuple):
    """A packed weight: the numbers of two constants, and whether it is transposed."""

    weight: int
    bias: int | None
    is_transposed: bool

    @property
    def key(self) -> Key:
        return "packed", f"{self.weight}:{self.bias}:{self.is_transposed}"


@dataclass(frozen=True)
class Program:
    """Instructions for one direction of a cell.

    Args:
        instructions: [num_instructions, 54] int64.
        buffers: [num_buffers, 3] int64: space, numbers per row, and of scratch memory the numbers
            per row before it.
        keys: what lies in each buffer (of scratch memory, nothing has to), then in each array of
            integers that it reads.
        numbers: the numbers of the code.
        scratch: how many numbers of scratch memory it takes per node and per edge.
        weights: the packed weights that it reads.
    """

    instructions: Tensor
    buffers: Tensor
    keys: tuple[Key, ...]
    numbers: Tensor
    scratch: tuple[int, int]
    weights: tuple[Weight, ...]

    @cached_property
    def sums(self) -> Mapping[Key, int]:
        """The sums that each thread has of its own -> the number of their numbers."""
        sizes = zip(self.keys, self.buffers[:, 1].tolist(), strict=False)
        return {key: size for key, size in sizes if key[0] == "sums"}

    @cached_property
    def head(self) -> list[int]:
        """Its beginning in native memory; the addresses of `keys` follow."""
        return [
            self.buffers.data_ptr(),
            self.instructions.data_ptr(),
            len(self.buffers),
            len(self.instructions),
            *self.scratch,
        ]
