"""Unrolled rounds: message passing as one pass over nodes (v, t), which read (u, t - 1).

Rows are sorted by type and then by round, as those of a pass up or down are by type and step. After
few rounds more nodes are equal than in the end: the state of a node depends on what lies within t
steps of it, and there molecules repeat each other. Nodes that are equal in a round have one row
there.

The op type of (v, t) is that of v plus t times the number of types: rounds may have cells of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.dag.depth import IntArray, run_pointers, spread_runs

#: By op type, rows to read; None for all as they are.
_Rows: TypeAlias = "tuple[RowIndex | None, ...]"


@dataclass(frozen=True, eq=False)
class UnrolledRounds:
    """The plan of all rounds of a pass, and how rows follow each other from round to round.

    Args:
        plan: with the rows of every round, the state before the first among them.
        order: [num_rounds + 1][num_types] the rows of `x` that those are given.
        kept: [num_types] which of the rows that a type has in the plan of a round there are before
            the first.
        spread: [num_types] which row of the last round each of those is.
    """

    plan: PassSchedule
    order: Sequence[_Rows]
    kept: _Rows
    spread: _Rows

    @property
    def num_rounds(self) -> int:
        return len(self.order) - 1

    def code(self, number: int, op_type: int) -> int:
        """The op type of the nodes of a type in a round."""
        return number * len(self.kept) + op_type

    def round_of(self, code: int) -> tuple[int, int]:
        """(number of the round, op type of the nodes), from `code`."""
        return divmod(code, len(self.kept))

    def rows(self, number: int, op_type: int) -> Group:
        """The rows of a type in a round."""
        return self.plan.types[self.code(number, op_type)]

    def previous(self, group: Group) -> tuple[int, RowIndex | None]:
        """The rows of a group's nodes in the round before.

        Returns:
            The first row of their group there, and [group_size] which of its rows they are; None
            for its rows as they are.
        """
        number, op_type = self.round_of(group.op_type)
        before, row = self.rows(number - 1, op_type), self.plan.previous_index
        if before.size == group.size or row is None:
            return before.start, None
        own = row.derive(group.start, lambda rows: rows[group.rows] - before.start)
        return before.start, own

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> UnrolledRounds:
        """A copy with `function` applied to every tensor."""
        known: dict[RowIndex, RowIndex] = {}  # most rounds have the same

        def moved(rows: _Rows) -> _Rows:
            for index in rows:
                if index is not None and index not in known:
                    known[index] = index.map_tensors(function)
            return tuple(index and known[index] for index in rows)

        return replace(
            self,
            plan=self.plan.map_tensors(function),
            order=[moved(rows) for rows in self.order],
            kept=moved(self.kept),
            spread=moved(self.spread),
        )


class _Block(NamedTuple):
    """The rows of a type in one round, as the plan of a round has them.

    Args:
        number: of the round; 0 is the state before the first.
        whole: all rows of the type.
        rows: [size] those that have a row of their own in the round; a slice for all.
        size: how many there are.
        start: the first of their unrolled rows.
    """

    number: int
    whole: Group
    rows: IntArray | slice
    size: int
    start: int


def unroll(
    plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray | None] = ()
) -> UnrolledRounds:
    """One plan of all rounds, from the plan of each round.

    Args:
        plan: of a round.
        num_rounds: how many there are.
        equal: before the first round and after each, [num_plan_rows + 1] the first of the rows that
            each row equals then, None where no rows are equal; nothing if they never are. Nodes
            that are equal in the end have one row already; these are equal in early rounds only.
    """
    blocks = _find_blocks(plan, num_rounds, equal)
    of = np.zeros((num_rounds + 1, plan.num_rows + 1), np.int64)  # the unrolled row of each
    for block in blocks:
        of[block.number][block.rows] = np.arange(block.start, block.start + block.size)
    for unrolled_row, first in zip(of, equal, strict=False):
        if first is not None:
            unrolled_row[:] = unrolled_row[first]
    (count, previous, reading, child), columns = _follow(plan, blocks, of)
    ptr, numpy = run_pointers(count), torch.from_numpy
    unrolled = PassSchedule(
        groups=tuple(sorted(_group(block, len(plan.type_order), ptr) for block in blocks)),
        row=plan.row,
        node=numpy(np.zeros(len(count), np.int64)),
        child_ptr=numpy(ptr),
        child_row=numpy(child),
        reading=numpy(reading),
        type_order=(None,) * (len(plan.type_order) * (num_rounds + 1)),
        read_types=frozenset(),
        previous_row=numpy(np.append(0, previous)),
        edge=columns["edge"],
        neighbor_count=columns["neighbor_count"],
        loop=columns.get("loop"),
        relation=columns.get("relation"),
    )
    return UnrolledRounds(unrolled, *_find_indices(plan, blocks, of))


def _find_blocks(
    plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray | None]
) -> list[_Block]:
    """The blocks of the first type in every round, then those of the next type."""
    blocks, start = [], 1
    for whole in plan.types.values():
        everyone = np.arange(whole.start, whole.stop)
        for number in range(num_rounds + 1):
            rows: IntArray | slice = whole.rows
            size = whole.size
            first = equal[number] if equal else None
            if first is not None:
                own = everyone[first[rows] == everyone]
                rows, size = (rows, size) if len(own) == size else (own, len(own))
            blocks.append(_Block(number, whole, rows, size, start))
            start += size
    return blocks


def _follow(
    plan: PassSchedule, blocks: Sequence[_Block], of: IntArray
) -> tuple[list[IntArray], dict[str, Tensor]]:
    """Reads of the unrolled rows, all of them of the round before.

    Returns:
        [num_rows] how many children each row has, and the row of the same node in the round before,
        or 0; [num_edges] the position of the row that reads, and the row that it reads; and columns
        of the edges, as `PassSchedule` names them.
    """
    read, degree = plan.child_row.numpy(), np.append(0, np.diff(plan.child_ptr.numpy()))
    given = {"edge": plan.edge, "loop": plan.loop, "relation": plan.relation}
    columns = {name: column.numpy() for name, column in given.items() if column is not None}
    others = degree  # an absent child has none
    if plan.loop is not None:
        loops = np.bincount(plan.reading.numpy() + 1, columns["loop"], len(degree))
        others = degree - loops.astype(np.int64)
    columns["neighbor_count"] = others[read]
    parts = [(np.zeros(0, np.int64),) * (4 + len(columns))]
    for block in blocks:
        edges, reading = _edges_of(block, plan)
        count = previous = np.zeros(block.size, np.int64)
        if block.number:
            count, previous = degree[block.rows], of[block.number - 1][block.rows]
        child = of[block.number - 1][read[edges]]
        of_edges = (column[edges] for column in columns.values())
        parts.append((count, previous, reading, child, *of_edges))
    joined = [np.concatenate(own) for own in zip(*parts, strict=True)]
    return joined[:4], dict(zip(columns, map(torch.from_numpy, joined[4:]), strict=True))


def _edges_of(block: _Block, plan: PassSchedule) -> tuple[IntArray | slice, IntArray]:
    """The edges of the plan that a block has, and the unrolled position of the row of each."""
    number, whole, rows, _, start = block
    if number == 0:
        return slice(0, 0), np.zeros(0, np.int64)
    if isinstance(rows, slice):
        return whole.edges, plan.reading.numpy()[whole.edges] + (start - whole.start)
    ptr = plan.child_ptr.numpy()
    _, reading, edges = spread_runs(ptr[rows - 1], ptr[rows] - ptr[rows - 1])
    return edges, reading + (start - 1)


def _group(block: _Block, num_types: int, ptr: IntArray) -> Group:
    """The rows of a block as a group, with edges from `ptr`."""
    code, stop = block.number * num_types + block.whole.op_type, block.start + block.size
    return Group(code, block.start, stop, int(ptr[block.start - 1]), int(ptr[stop - 1]))


def _find_indices(
    plan: PassSchedule, blocks: Sequence[_Block], of: IntArray
) -> tuple[list[_Rows], _Rows, _Rows]:
    """`order`, `kept` and `spread` of `UnrolledRounds`."""
    kept: list[RowIndex | None] = [None] * len(plan.type_order)
    order, spread = [list(plan.type_order) for _ in of], kept.copy()
    for number, whole, rows, _, start in blocks:
        if isinstance(rows, slice):
            continue
        op_type, there = whole.op_type, rows - whole.start
        own = plan.type_order[op_type]
        order[number][op_type] = _index(there if own is None else own.rows.numpy()[there])
        if number == 0:
            kept[op_type] = _index(there)
        elif number == len(order) - 1:
            spread[op_type] = _index(of[number, whole.rows] - start)
    return [tuple(own) for own in order], tuple(kept), tuple(spread)


def _index(rows: IntArray) -> RowIndex:
    return RowIndex(torch.from_numpy(rows))
