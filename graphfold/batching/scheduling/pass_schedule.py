"""PassSchedule: the plan of one pass, as index arrays in the order of its rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphfold.batching.kernels.gather import RowIndex, sort_readers
from graphfold.batching.scheduling.routes import JoinedRoutes, Routes, find_routes
from graphfold.dag.typed_dag import host_property, tensor_property


class Group(NamedTuple):
    """Nodes of one type that run together: a contiguous slice of rows; see also native/pass.c."""

    op_type: int
    start: int  # first row
    stop: int  # last row plus one
    edge_start: int  # first child edge
    edge_stop: int

    @property
    def size(self) -> int:
        """The number of nodes that run."""
        return self.stop - self.start

    @property
    def num_edges(self) -> int:
        """The number of their child edges."""
        return self.edge_stop - self.edge_start

    @property
    def rows(self) -> slice:
        """Their rows, in a buffer that has row 0."""
        return slice(self.start, self.stop)

    @property
    def positions(self) -> slice:
        """The positions of the rows, which do not count row 0."""
        return slice(self.start - 1, self.stop - 1)

    @property
    def edges(self) -> slice:
        """Their child edges."""
        return slice(self.edge_start, self.edge_stop)


@dataclass(frozen=True, eq=False)
class PassSchedule:
    """The plan of one pass. Row 0 stands for an absent child; nodes have the rows 1 .. num_rows.

    Nodes are those of the graphs, or the classes of equal nodes (see `deduplicate`). Rows are
    sorted by type and then by the step in which they run, so the rows of a group are one slice, and
    those of a type as well; edges are sorted by the row that reads, so theirs are, too. "Position"
    of a row is the row minus one: that of its node among `node`; "position" of an edge is its place
    in `child_row`.
    """

    groups: tuple[Group, ...]  # in the order in which they run
    row: Tensor  # [num_rows] int64, the row of each node
    node: Tensor  # [num_rows] int64, the node of each row, row 1 first
    child_ptr: Tensor  # [num_rows + 1] int64, where the child edges of each row begin
    child_row: Tensor  # [num_edges] int64, the row that each edge reads; 0 for an absent child
    reading: Tensor  # [num_edges] int64, the position of the row that reads
    edge: Tensor  # [num_edges] int64, the number of the edge in the `TypedDAG`, see `Edges`
    type_order: tuple[RowIndex | None, ...]  # per type, its nodes in row order; None: node order
    read_types: frozenset[tuple[int, int]]  # (type that reads, type that is read) in this batch
    # Of unrolled rounds: what `child_counts` gives, and [num_rows + 1] the row of the same node in
    # the round before; 0 for none.
    neighbor_count: Tensor | None = None
    loop: Tensor | None = None  # [num_edges] see `self_loops`; None where there is none
    previous_row: Tensor | None = None
    # Of several relations: [num_edges] which of them each edge is of, and, of unrolled rounds, for
    # each the plan of the same rows with its edges alone.
    relation: Tensor | None = None
    by_relation: Mapping[str, PassSchedule] = field(default_factory=dict)
    on_cpu: PassSchedule | None = None  # of a plan on a GPU, the plan that it is a copy of

    @property
    def host(self) -> PassSchedule:
        """The plan on the CPU, where indices are found without waiting for a GPU."""
        return self.on_cpu or self

    @property
    def device(self) -> torch.device:
        return self.row.device

    @tensor_property
    def reader_edge(self) -> Tensor:
        """[num_edges] the edges' positions, sorted by the row they read."""
        return self.child_index.readers(self.num_rows + 1)[0]

    @tensor_property
    def reader_ptr(self) -> Tensor:
        """[num_rows + 2] where the readers of each row begin; row 0 first."""
        return self.child_index.readers(self.num_rows + 1)[1]

    @tensor_property
    def child_index(self) -> RowIndex:
        """`child_row`, with the edges that read each row."""
        return RowIndex(self.child_row, None if self.on_cpu is None else self.on_cpu.child_index)

    @tensor_property
    def edge_index(self) -> RowIndex:
        """`edge`, for what is read by it."""
        return RowIndex(self.edge, None if self.on_cpu is None else self.on_cpu.edge_index)

    @tensor_property
    def previous_index(self) -> RowIndex | None:
        """`previous_row`, for what is read by it."""
        if self.previous_row is None:
            return None
        on_cpu = None if self.on_cpu is None else self.on_cpu.previous_index
        return RowIndex(self.previous_row, on_cpu)

    @tensor_property
    def reader(self) -> Tensor:
        """[num_edges] the position of the row that reads, in the order of `reader_edge`."""
        return self.reading.index_select(0, self.reader_edge)

    @host_property
    def parent(self) -> Tensor:
        """[num_edges] the reading node's position in its group."""
        ordered = self.in_row_order
        size = self.child_ptr.new_tensor([group.size for group in ordered])
        first = self.child_ptr.new_tensor([group.start - 1 for group in ordered])
        first = first.repeat_interleave(size, output_size=self.num_rows)
        return self.reading - first.index_select(0, self.reading)

    @host_property
    def following(self) -> tuple[Tensor, Tensor] | None:
        """The rows that follow each in the next round, as positions; see `reader_ptr`."""
        if self.previous_row is None:
            return None
        row, ptr = sort_readers(self.previous_row, self.num_rows + 1)
        return ptr, row - 1

    @cached_property
    def groups_by_type(self) -> dict[int, list[Group]]:
        """op type -> its groups, in order."""
        found: dict[int, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.op_type, []).append(group)
        return found

    @cached_property
    def types(self) -> dict[int, Group]:
        """op type -> all of its rows, as if they were one group; in row order."""
        ends = ((groups[0], groups[-1]) for groups in self.groups_by_type.values())
        whole = [first._replace(stop=last.stop, edge_stop=last.edge_stop) for first, last in ends]
        return {own.op_type: own for own in sorted(whole, key=lambda own: own.start)}

    @cached_property
    def num_rows(self) -> int:
        """The number of computed rows; a buffer has one more, for absent children."""
        return self.in_row_order[-1].stop - 1 if self.groups else 0

    @cached_property
    def num_edges(self) -> int:
        """The number of child edges of all rows."""
        return self.in_row_order[-1].edge_stop if self.groups else 0

    def split_rows(self, buffer: Tensor) -> dict[int, Tensor]:
        """First row of a group -> its rows of a [num_rows + 1, ...] buffer."""
        return _split(buffer[1:], self.in_row_order, [g.size for g in self.in_row_order])

    def split_edges(self, values: Tensor) -> dict[int, Tensor]:
        """First row of a group -> its part of what all child edges have, [num_edges, ...]."""
        return _split(values, self.in_row_order, [g.num_edges for g in self.in_row_order])

    def split_type(self, x: Tensor, op_type: int) -> dict[int, Tensor]:
        """First row of a group of a type -> its rows of what all nodes of the type have."""
        groups = self.groups_by_type.get(op_type, [])
        return _split(x, groups, [g.size for g in groups])

    @cached_property
    def in_row_order(self) -> list[Group]:
        """The groups as their rows lie; they run in another order."""
        return sorted(self.groups, key=lambda group: group.start)

    @tensor_property
    def routes(self) -> Routes:
        """The groups that each group reads."""
        sizes = {group.start: group.num_edges for group in self.in_row_order}
        return Routes.split(self._joined_routes, sizes)

    @host_property
    def _joined_routes(self) -> JoinedRoutes:
        groups = [(g.start, g.edge_start, g.num_edges) for g in self.in_row_order]
        return find_routes(groups, self.child_row, self.reader_edge)

    @tensor_property
    def child_counts(self) -> Tensor:
        """[num_edges] how many children but itself the child of each edge has."""
        if self.neighbor_count is not None:
            return self.neighbor_count
        return self.child_count(self.child_row)

    @tensor_property
    def self_loops(self) -> Tensor:
        """[num_edges] int64, 1 where the row that reads is of the node that it reads, else 0."""
        return torch.zeros_like(self.child_row) if self.loop is None else self.loop

    @host_property
    def child_positions(self) -> Tensor:
        """[num_edges] the place of each edge among the edges of the row that reads."""
        first = self.child_ptr[:-1].repeat_interleave(self.child_ptr.diff())
        return torch.arange(len(first), device=first.device) - first

    def child_count(self, row: Tensor) -> Tensor:
        """[len(row)] how many children the nodes of some rows have; 0 for an absent child."""
        return self.child_ptr[row] - self.child_ptr[(row - 1).clamp(min=0)]

    def group_ptr(self, group: Group) -> Tensor:
        """[group_size + 1] where the child edges of each row begin, counted within the group."""
        return self.child_ptr[group.start - 1 : group.stop] - group.edge_start

    def group_parent(self, group: Group) -> Tensor:
        """[num_child_edges] the position in the group of each edge's parent."""
        return self.parent[group.edges]

    def group_child_row(self, group: Group) -> Tensor:
        """[num_child_edges] the row that each edge reads."""
        return self._child_rows[group.start]

    @tensor_property
    def _child_rows(self) -> dict[int, Tensor]:
        return self.split_edges(self.child_row)

    @cached_property
    def group_table(self) -> array[int]:
        """[num_groups, 5] the groups, for native code."""
        return array("q", chain.from_iterable(self.groups))

    def rows_of_type(self, op_type: int) -> Tensor:
        """[num_rows_of_type] the rows of a type, in node order."""
        return self._rows_by_type.get(op_type, self.row[:0])

    @host_property
    def _rows_by_type(self) -> dict[int, Tensor]:
        return {
            t: self.row[self.node[own.positions].sort().values] for t, own in self.types.items()
        }

    def count_rows(self, op_type: int) -> int:
        """The number of rows of a type."""
        return self.types[op_type].size if op_type in self.types else 0

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> PassSchedule:
        """A copy with `function` applied to every tensor."""
        moved: dict[str, Any] = {
            item.name: function(value)
            for item in fields(self)
            if isinstance(value := getattr(self, item.name), Tensor)
        }
        return replace(
            self,
            **moved,
            type_order=tuple(t and t.map_tensors(function) for t in self.type_order),
            by_relation={n: p.map_tensors(function) for n, p in self.by_relation.items()},
            on_cpu=None if moved["row"].is_cpu else self.host,
        )


def _split(values: Tensor, groups: Sequence[Group], sizes: list[int]) -> dict[int, Tensor]:
    """First row of a group -> its part of values that cover all these groups.

    Views, made at once: slicing for one group after the other takes three times as long.
    """
    parts = values.split_with_sizes(sizes)
    return dict(zip((group.start for group in groups), parts, strict=True))
