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

    def previous(self, group: Group) -> tuple[int, Tensor | None]:
        """The rows of a group's nodes in the round before.

        Returns:
            The first row of their group there, and [group_size] which of its rows they are; None
            for its rows as they are.
        """
        number, op_type = self.round_of(group.op_type)
        before, row = self.rows(number - 1, op_type), self.plan.previous_row
        if before.size == group.size or row is None:
            return before.start, None
        return before.start, row[group.rows] - before.start

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
    """One plan of all rounds, from the plan of each round.

    Args:
        plan: of a round.
        num_rounds: how many there are.
        equal: before the first round and after each, [num_plan_rows + 1] the first of the rows that
            each row equals then; nothing if no rows are equal. Nodes that are equal in the end have
            one row already; these are equal in early rounds only.
    """
    num_types = len(plan.type_order)
    rows = _find_rows(plan, num_rounds, equal)
    later, plan_ptr = rows.number > 0, plan.child_ptr.numpy()
    start = plan_ptr[rows.row - 1]
    ptr, reading, edge = spread_runs(start, (plan_ptr[rows.row] - start) * later)
    read = plan.child_row.numpy()[edge]
    child = rows.of[rows.number[reading] - 1, read]
    before = np.append(0, rows.of[rows.number - 1, rows.row] * later)
    degree = np.append(0, plan_ptr[1:] - plan_ptr[:-1])  # of an absent child none
    loop = None if plan.loop is None else plan.loop.numpy()
    if loop is not None:
        degree[1:] -= np.bincount(plan.reading.numpy(), loop, plan.num_rows).astype(np.int64)
    groups = _groups(plan, rows, ptr)
    numpy = torch.from_numpy
    unrolled = PassSchedule(
        groups=groups,
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
        loop=None if loop is None else numpy(loop[edge]),
    )
    order, kept, spread = _find_indices(plan, rows, groups)
    return UnrolledRounds(unrolled, order, kept, spread)


def _groups(plan: PassSchedule, rows: _Unrolled, ptr: IntArray) -> tuple[Group, ...]:
    """The rows of each type in each round, round by round, with edges from `ptr`."""
    types, num_layers = plan.types.values(), len(rows.of)
    codes = [n * len(plan.type_order) + own.op_type for own in types for n in range(num_layers)]
    start = rows.of[:, [own.start for own in types]].T.flatten()
    stop = np.append(start[1:], len(rows.row) + 1)
    bounds = (column.tolist() for column in (start, stop, ptr[start - 1], ptr[stop - 1]))
    return tuple(sorted(map(Group, codes, *bounds)))


def _find_indices(
    plan: PassSchedule, rows: _Unrolled, groups: Sequence[Group]
) -> tuple[list[_Rows], _Rows, _Rows]:
    """`order`, `kept` and `spread` of `UnrolledRounds`."""
    kept: list[RowIndex | None] = [None] * len(plan.type_order)
    order, spread = [list(plan.type_order) for _ in rows.of], kept.copy()
    for group in groups:
        number, op_type = divmod(group.op_type, len(kept))
        whole, own = plan.types[op_type], plan.type_order[op_type]
        if group.size == whole.size:
            continue
        there = rows.row[group.positions] - whole.start
        order[number][op_type] = _index(there if own is None else own.rows.numpy()[there])
        if number == 0:
            kept[op_type] = _index(there)
        elif number == len(order) - 1:
            spread[op_type] = _index(rows.of[number, whole.rows] - group.start)
    return [tuple(own) for own in order], tuple(kept), tuple(spread)


def _index(rows: IntArray) -> RowIndex:
    return RowIndex(torch.from_numpy(rows))


def _find_rows(plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray]) -> _Unrolled:
    """The rows of the first type in every round, then of the next type."""
    everyone, num_layers = np.arange(plan.num_rows + 1), num_rounds + 1
    stands = np.stack(equal or [everyone] * num_layers)
    is_own = stands == everyone
    places = [np.zeros((2, 0), np.int64)]
    for whole in plan.types.values():
        number, position = is_own[:, whole.rows].nonzero()
        places.append(np.stack([number, position + whole.start]))
    number, row = np.concatenate(places, axis=1)
    of = np.zeros((num_layers, plan.num_rows + 1), np.int64)
    of[number, row] = np.arange(1, len(row) + 1)
    return _Unrolled(row, number, np.take_along_axis(of, stands, 1))
