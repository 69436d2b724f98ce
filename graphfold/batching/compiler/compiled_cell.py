"""CompiledCell: the programs of one cell, and what forward and backward leave for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graphfold.batching.compiler.backend import Backend
from graphfold.batching.compiler.lowering import Lowered
from graphfold.batching.compiler.operations import LOOK_UP, X
from graphfold.batching.compiler.program import Key, Program, WeightGradient


@dataclass(frozen=True)
class CompiledCell:
    """The programs of one cell.

    Args:
        lowered: what the cell computes.
        backend: what has written the programs, and runs them.
        forward: the program of forward; it keeps what backward reads, if there is one.
        backward: the program of backward, or None.
        kept: what forward writes besides fields -> (space, numbers per row); backward reads it.
        buffers: what backward writes -> the same.
        products: the gradients of weights.
        accumulated: the numbers of constants whose gradient is added up -> their sizes.
        tables: the tables of edges that get a gradient.
    """

    lowered: Lowered
    backend: Backend
    forward: Program
    backward: Program | None = None
    kept: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    buffers: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    products: Sequence[WeightGradient] = ()
    accumulated: Mapping[int, int] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    @cached_property
    def reads(self) -> frozenset[str]:
        """The parts of x that it reads."""
        return frozenset(value.name for value in self.lowered.values if value.operation is X)

    @cached_property
    def reads_tables(self) -> frozenset[str]:
        """The tables of edges that it reads."""
        values = self.lowered.values
        return frozenset(value.name for value in values if value.operation is LOOK_UP)

    @cached_property
    def fields_read(self) -> frozenset[tuple[str, str]]:
        """The fields that it reads: ("child_row", field), in rounds ("previous_row", field) too."""
        fetched = ((v.operation.fetched, v.name) for v in self.lowered.values)
        return frozenset((own[1], name) for own, name in fetched if own and own[0] == "read")

    @cached_property
    def read_constants(self) -> frozenset[Key]:
        """The constants that are read as they lie, not as packed weights."""
        programs = [self.forward, *([self.backward] if self.backward is not None else [])]
        return frozenset[Key]().union(*(program.read_constants for program in programs))

    def reads_back(self, key: Key) -> bool:
        """True if backward reads a part of x; what it computes from is kept anyway."""
        by_program = self.backward is not None and key in self.backward.keys
        return by_program or any(product.x.key == key for product in self.products)

    @cached_property
    def takes_means(self) -> bool:
        """True if it takes means over all nodes of a group."""
        return any(kind == "group" for kind, _ in self.kept)

    @cached_property
    def reads_integers(self) -> frozenset[str]:
        """The integers of its edges that it reads, see `Signature`: "is_self", "position" ..."""
        names = {"child_count", "is_self", "position", "relation"}
        return frozenset(names & {name for name, _ in self.forward.keys})
