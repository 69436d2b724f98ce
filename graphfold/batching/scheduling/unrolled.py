"""Unrolled rounds: message passing as one pass over nodes (v, t), which read (u, t - 1).

Rows are sorted by type, then by round, so that a field takes memory only for the types that have
it; groups run round by round. After few rounds more nodes are equal than in the end: the state of a
node depends on what lies within t steps of it, and there molecules repeat each other. Nodes that
are equal in a round have one row there.

The op type of (v, t) is that of v plus t times the number of types: rounds may have cells of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.dag.depth import IntArray, run_pointers

_Find: TypeAlias = "Callable[[UnrolledRounds, int, Group], RowIndex | None]"


def _found_once(find: _Find) -> _Find:
    """The method of `UnrolledRounds`, which is asked once per plan, on the CPU."""

    @wraps(find)
    def kept(rounds: UnrolledRounds, number: int, group: Group) -> RowIndex | None:
        known, key = rounds.known, (find.__name__, number, group.op_type)
        if key not in known:
            with torch.inference_mode(False):
                known[key] = found(rounds, number, group)
        return known[key]

    def found(rounds: UnrolledRounds, number: int, group: Group) -> RowIndex | None:
        if rounds.on_cpu is None:
            return find(rounds, number, group)
        index, device = kept(rounds.on_cpu, number, group), rounds.row.device
        return index and index.map_tensors(lambda rows: rows.to(device, non_blocking=True))

    return kept


@dataclass(frozen=True, eq=False)
class UnrolledRounds:
    """The plan of all rounds of a pass, and how rows of one round follow those of the last.

    Args:
        plan: with the rows of every round, the state before the first among them.
        first: [num_rounds + 1][num_types] the first row of a type in a round.
        size: [num_rounds + 1][num_types] how many rows it has there.
        row: [num_rows] the row in the plan of each round.
        of: [num_rounds + 1, num_plan_rows + 1] the row that each of those has in a round.
        type_order: of the plan of each round.
        on_cpu: of rounds on a GPU, those that they are a copy of.

    Attributes:
        known: the indices that have been asked for.
    """

    plan: PassSchedule
    first: Sequence[Sequence[int]]
    size: Sequence[Sequence[int]]
    row: Tensor
    of: Tensor
    type_order: Sequence[RowIndex | None]
    on_cpu: UnrolledRounds | None = None
    known: dict[Any, RowIndex | None] = field(default_factory=dict, init=False, repr=False)

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
        return replace(
            self,
            plan=self.plan.map_tensors(function),
            row=(row := function(self.row)),
            of=function(self.of),
            type_order=[order and order.map_tensors(function) for order in self.type_order],
            on_cpu=None if row.is_cpu else self.on_cpu or self,
        )

    @_found_once
    def kept(self, number: int, group: Group) -> RowIndex | None:
        """[size] which rows of a group of the plan there are in a round; None for all."""
        first, size = self.first[number][group.op_type], self.size[number][group.op_type]
        if size == group.size:
            return None
        return RowIndex(self.row[first - 1 : first - 1 + size] - group.start)

    @_found_once
    def order(self, number: int, group: Group) -> RowIndex | None:
        """[size] the rows of `x` of those that there are in a round; None for all as they are."""
        kept, order = self.kept(number, group), self.type_order[group.op_type]
        if kept is None or order is None:
            return kept or order
        return RowIndex(order.rows.index_select(0, kept.rows))

    @_found_once
    def spread(self, number: int, group: Group) -> RowIndex | None:
        """[group_size] which row of a round each of a group is; None if each is its own."""
        first, size = self.first[number][group.op_type], self.size[number][group.op_type]
        return None if size == group.size else RowIndex(self.of[number, group.rows] - first)


class _Rows(NamedTuple):
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
    count = (plan_ptr[rows.row] - start) * later
    ptr = run_pointers(count)
    reading = np.arange(len(count)).repeat(count)
    edge = np.arange(len(reading)) + (start - ptr[:-1])[reading]
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
    row, of = numpy(rows.row), numpy(rows.of)
    return UnrolledRounds(unrolled, first, size, row, of, plan.type_order)


def _find_rows(
    plan: PassSchedule, num_rounds: int, equal: Sequence[IntArray]
) -> tuple[_Rows, list[list[int]]]:
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
    return _Rows(row, number, np.take_along_axis(of, stands, 1)), size


def _group(code: int, row: int, size: int, ptr: IntArray) -> Group:
    edges = int(ptr[row - 1]), int(ptr[row - 1 + size])
    return Group(code, row, row + size, *edges, type_start=0, type_edge_start=0)
