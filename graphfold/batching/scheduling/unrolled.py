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
from graphfold.dag.depth import IntArray, spread_runs

#: By op type, rows to read; None for all as they are.
_Rows: TypeAlias = "tuple[RowIndex | None, ...]"


@dataclass(frozen=True, eq=False)
class UnrolledRounds:
    """The plan of all rounds of a pass, and how rows of one round follow those of the last.

    Args:
        plan: with the rows of every round, the state before the first among them.
        first: [num_rounds + 1][num_types] the first row of a type in a round.
        size: [num_rounds + 1][num_types] how many rows it has there.
        order: [num_rounds + 1][num_types] the rows of `x` that those are given.
        kept: [num_types] which of the rows that a type has in the plan of a round there are before
            the first.
        spread: [num_types] which row of the last round each of those is.
    """

    plan: PassSchedule
    first: Sequence[Sequence[int]]
    size: Sequence[Sequence[int]]
    order: Sequence[_Rows]
    kept: _Rows
    spread: _Rows

    @property
    def num_rounds(self) -> int:
        return len(self.first) - 1

    def code(self, number: int, op_type: int) -> int:
        """The op type of the nodes of a type in a round."""
        return number * len(self.first[0]) + op_type

    def round_of(self, code: int) -> tuple[int, int]:
        """(number of the round, op type of the nodes), from `code`."""
        return divmod(code, len(self.first[0]))

    def previous(self, group: Group) -> tuple[int, Tensor | None]:
        """The rows of a group's nodes in the round before.

        Returns:
            The first row of their group there, and [group_size] which of its rows they are; None
            for its rows as they are.
        """
        number, op_type = self.round_of(group.op_type)
        first, size = self.first[number - 1][op_type], self.size[number - 1][op_type]
        before = self.plan.previous_row
        return first, None if size == group.size or before is None else before[group.rows] - first

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


class _Unrolled(NamedTuple):
    """The round, type and node of each unrolled row."""

    row: IntArray  # [num_rows] a row of the plan
    number: IntArray  # [num_rows] the round
    of: IntArray  # [num_rounds + 1, num_plan_rows + 1] the unrolled row of each


def unroll(plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray] = ()) -> UnrolledRounds:
    """The plan of rounds as one, from that of each round.

    Args:
        plan: of a round.
        num_rounds: how many there are.
        equal: before the first round and after each, [num_plan_rows + 1] the first of the rows that
            each row equals then; nothing if no rows are equal. Nodes that are equal in the end have
            one row already; these are equal in early rounds only.
    """
    num_types = len(plan.type_order)
    rows, size = _find_rows(plan, num_rounds, equal)
    starts = {group.op_type: group.start for group in plan.groups}
    first = rows.of[:, [starts.get(op_type, 0) for op_type in range(num_types)]].tolist()
    later, plan_ptr = rows.number > 0, plan.child_ptr.numpy()
    start = plan_ptr[rows.row - 1]
    ptr, reading, edge = spread_runs(start, (plan_ptr[rows.row] - start) * later)
    read = plan.child_row.numpy()[edge]
    child = rows.of[rows.number[reading] - 1, read]
    before = np.append(0, rows.of[rows.number - 1, rows.row] * later)
    degree = np.append(0, plan_ptr[1:] - plan_ptr[:-1])  # of an absent child none
    groups = [
        _group(number * num_types + op_type, row, size[number][op_type], ptr)
        for number, own in enumerate(first)
        for op_type, row in enumerate(own)
        if row
    ]
    numpy = torch.from_numpy
    unrolled = PassSchedule(
        groups=tuple(groups),
        row=plan.row,
        node=numpy(np.zeros(len(rows.row), np.int64)),
        child_ptr=numpy(ptr),
        child_row=numpy(child),
        reading=numpy(reading),
        edge=numpy(plan.edge.numpy()[edge]),
        type_order=(None,) * (num_types * (num_rounds + 1)),
        read_types=frozenset(),
        previous_row=numpy(before),
        neighbor_count=numpy(degree[read]),
    )
    kept, order, spread = _find_indices(plan, rows, first, size)
    return UnrolledRounds(unrolled, first, size, order, kept, spread)


def _find_indices(
    plan: PassSchedule, rows: _Unrolled, first: list[list[int]], size: list[list[int]]
) -> tuple[_Rows, list[_Rows], _Rows]:
    """`kept`, `order` and `spread` of `UnrolledRounds`."""
    kept: list[RowIndex | None] = [None] * len(plan.type_order)
    order, spread = [list(plan.type_order) for _ in size], kept.copy()
    for group in plan.groups:
        op_type, own = group.op_type, plan.type_order[group.op_type]
        for number in range(len(size)):
            count, start = size[number][op_type], first[number][op_type]
            if count == group.size:
                continue
            there = rows.row[start - 1 : start - 1 + count] - group.start
            order[number][op_type] = _index(there if own is None else own.rows.numpy()[there])
            if number == 0:
                kept[op_type] = _index(there)
            elif number == len(size) - 1:
                spread[op_type] = _index(rows.of[number, group.rows] - start)
    return tuple(kept), [tuple(own) for own in order], tuple(spread)


def _index(rows: IntArray) -> RowIndex:
    return RowIndex(torch.from_numpy(rows))


def _find_rows(
    plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray]
) -> tuple[_Unrolled, list[list[int]]]:
    """Those of the first type in every round, then those of the next one; and their numbers."""
    everyone, num_layers = np.arange(plan.num_rows + 1), num_rounds + 1
    stands = np.stack(equal or [everyone] * num_layers)
    is_own = stands == everyone
    size = [[0] * len(plan.type_order) for _ in range(num_layers)]
    places = [np.zeros((2, 0), np.int64)]
    for group in plan.groups:
        number, position = is_own[:, group.rows].nonzero()
        places.append(np.stack([number, position + group.start]))
        for layer, count in enumerate(np.bincount(number, minlength=num_layers).tolist()):
            size[layer][group.op_type] = count
    number, row = np.concatenate(places, axis=1)
    of = np.zeros((num_layers, plan.num_rows + 1), np.int64)
    of[number, row] = np.arange(1, len(row) + 1)
    return _Unrolled(row, number, np.take_along_axis(of, stands, 1)), size


def _group(code: int, row: int, size: int, ptr: IntArray) -> Group:
    edges = int(ptr[row - 1]), int(ptr[row - 1 + size])
    return Group(code, row, row + size, *edges)
