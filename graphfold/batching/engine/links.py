"""What a round of message passing reads: the links to the neighbours, and their old state."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from torch import Tensor

from graphfold.batching.cell import Cell, makes_tables
from graphfold.batching.children import StateReader
from graphfold.batching.engine.round_inputs import RoundInputs
from graphfold.batching.engine.selected import Selected
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import GatherSum, gather_rows, select_rows
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.scheduling.pass_schedule import Group


class Links:
    """What the rows of one type read in a round: indices, and the edges' columns.

    Where a type reads one other, and is the only one to read it, the rows that it reads are counted
    within that type: nothing need be joined, and gradients are sums over the readers of a row.

    Args:
        group: the rows that read.
        inputs: the rounds.
    """

    def __init__(self, group: Group, inputs: RoundInputs) -> None:
        plan = inputs.plan
        self.group = group
        self.parent = plan.group_parent(group)
        self.ptr = plan.group_ptr(group)
        self.row = plan.group_child_row(group)
        self._number = plan.edge[group.edges]
        self._edge = Selected(inputs.edge, self._number)
        self._plan, self._inputs = plan, inputs
        read = [read for reader, read in plan.read_types if reader == group.op_type]
        self.read_type = read[0] if len(read) == 1 else None
        if self.read_type is not None:
            self.row = self.row - self._read_group.start

    def edge(self, cell: Cell) -> Mapping[str, Tensor]:
        """The columns of the edges, or what a cell makes of them."""
        if not makes_tables(cell):
            return self._edge
        columns, kind = self._inputs.edge_kinds
        return Selected(cell.before_edges(columns), kind.index_select(0, self._number))

    @cached_property
    def child_count(self) -> Tensor:
        """[num_edges] how many neighbours each neighbour has."""
        return self._plan.child_count(self._plan.group_child_row(self.group))

    @cached_property
    def readers(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """(reader, reader_ptr, reader_edge) as `GatherSum` takes them; None if there is no need.

        They lie together if no other type reads the same rows.
        """
        readers = [reader for reader, read in self._plan.read_types if read == self.read_type]
        if self.read_type is None or len(readers) != 1:
            return None
        plan, rows = self._plan, self._read_group
        ptr = plan.reader_ptr[rows.start : rows.stop + 1]
        begin = 0 if len(plan.read_types) == 1 else int(ptr[0])
        edges = slice(begin, begin + len(self.row))
        return (
            plan.reader[edges] - (self.group.start - 1),
            ptr - begin,
            plan.reader_edge[edges] - self.group.edge_start,
        )

    @property
    def _read_group(self) -> Group:
        return next(g for g in self._plan.groups if g.op_type == self.read_type)


class RoundReader(StateReader):
    """Reads the state of the round before, under autograd.

    Args:
        links: what the rows of a type read.
        old: what they read it of.
    """

    def __init__(self, links: Links, old: TypedFields) -> None:
        self._links = links
        self._old = old
        self.ptr = links.ptr
        self.parent = links.parent

    def rows(self, field: str) -> Tensor:
        values, links = self._values(field), self._links
        if links.readers is None:
            return select_rows(values, links.row)
        _, ptr, edge = links.readers
        return gather_rows(values, links.row, edge, ptr)

    def child_count(self) -> Tensor:
        return self._links.child_count

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        links = self._links
        if links.readers is None:
            rows = self.rows(field)
            rows = rows if weight is None else rows * weight.unsqueeze(1)
            return segment_sum(rows, self.ptr, self.parent)
        reader, ptr, edge = links.readers
        total: Tensor = GatherSum.apply(  # type: ignore[no-untyped-call]
            self._values(field), links.row, self.ptr, reader, ptr, weight, edge
        )
        return total

    def previous(self, field: str) -> Tensor:
        return self._old.part(field, self._links.group.op_type)

    def _values(self, field: str) -> Tensor:
        if self._links.read_type is None:
            return self._old[field]
        return self._old.part(field, self._links.read_type)
