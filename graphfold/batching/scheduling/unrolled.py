"""Unrolled rounds: message passing as one pass over nodes (v, t), which read (u, t - 1).

Rows are sorted by type, then by round, so that a field takes memory only for the types that have
it; groups run round by round. The op type of (v, t) is that of v plus t times the number of types:
rounds may have cells of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.readers import find_readers
from graphfold.dag.depth import IntArray, count_pointers, run_pointers, runs, stable_order


@dataclass(frozen=True, eq=False)
class UnrolledRounds:
    """The plan of all rounds of a pass, and how rows of one round follow those of the last.

    Args:
        plan: with the rows of every round, the state before the first among them.
        first: [num_rounds + 1][num_types] the first row of a type in a round.
        size: [num_types] how many rows it has there.
        previous_row: [num_rows + 1] the row of the same node in the round before; 0 for none.
        child_count: [num_edges] how many neighbours each neighbour has.
    """

    plan: PassSchedule
    first: Sequence[Sequence[int]]
    size: Sequence[int]
    previous_row: Tensor
    child_count: Tensor


class _Rows(NamedTuple):
    """What each unrolled row is."""

    row: IntArray  # [num_rows] a row of the plan
    number: IntArray  # [num_rows] the round
    of: IntArray  # [num_rounds + 1, num_plan_rows + 1] the unrolled row of each


def unroll(plan: PassSchedule, num_rounds: int) -> UnrolledRounds:
    """The plan of rounds as one.

    Args:
        plan: of each round.
        num_rounds: how many there are.
    """
    num_types = len(plan.type_order)
    rows = _find_rows(plan, num_rounds)
    starts = {group.op_type: group.start for group in plan.groups}
    first = rows.of[:, [starts.get(op_type, 0) for op_type in range(num_types)]].tolist()
    later, plan_ptr = rows.number > 0, plan.child_ptr.numpy()
    start, stop = plan_ptr[rows.row - 1], plan_ptr[rows.row]
    ptr = run_pointers((stop - start) * later)
    edge = runs(start[later], stop[later])
    parent = np.arange(len(rows.row)).repeat(np.diff(ptr))
    read = plan.child_row.numpy()[edge]
    child = rows.of[rows.number[parent] - 1, read]
    before = np.append(0, rows.of[rows.number - 1, rows.row] * later)
    size = [plan.count_rows(op_type) for op_type in range(num_types)]
    groups = [
        _group(number * num_types + op_type, row, size[op_type], ptr)
        for number, own in enumerate(first)
        for op_type, row in enumerate(own)
        if size[op_type]
    ]
    number_of_edge = plan.edge.numpy()[edge]
    unrolled = _plan(plan, groups, ptr, child, parent, number_of_edge, before, num_rounds + 1)
    count = plan.child_count(torch.from_numpy(read))
    return UnrolledRounds(unrolled, first, size, torch.from_numpy(before), count)


def _find_rows(plan: PassSchedule, num_rounds: int) -> _Rows:
    """Those of the first type in every round, then those of the next one."""
    pieces, numbers = [], []
    for group in plan.groups:
        pieces += [np.arange(group.start, group.stop)] * (num_rounds + 1)
        numbers.append(np.arange(num_rounds + 1).repeat(group.size))
    none = [np.zeros(0, np.int64)]
    row, number = np.concatenate(pieces or none), np.concatenate(numbers or none)
    of = np.zeros((num_rounds + 1, plan.num_rows + 1), np.int64)
    of[number, row] = np.arange(1, len(row) + 1)
    return _Rows(row, number, of)


def _group(code: int, row: int, size: int, ptr: IntArray) -> Group:
    edges = int(ptr[row - 1]), int(ptr[row - 1 + size])
    return Group(code, row, row + size, *edges, 0, -1, -1, 0)


def _plan(
    plan: PassSchedule,
    groups: Sequence[Group],
    ptr: IntArray,
    child: IntArray,
    parent: IntArray,
    edge: IntArray,
    before: IntArray,
    num_layers: int,
) -> PassSchedule:
    num_rows, numpy = len(before) - 1, torch.from_numpy
    readers = find_readers(child, num_rows)
    return PassSchedule(
        groups=tuple(groups),
        row=plan.row,
        node=numpy(np.zeros(num_rows, np.int64)),
        child_ptr=numpy(ptr),
        child_row=numpy(child),
        parent=numpy(parent),
        edge=numpy(edge),
        type_order=(None,) * (len(plan.type_order) * num_layers),
        read_types=frozenset(),
        reader_ptr=numpy(readers.ptr),
        reader_edge=numpy(readers.edge),
        reader=numpy(parent[readers.edge]),
        reader_of_row=None if readers.of_row is None else numpy(readers.of_row),
        following=(numpy(count_pointers(before, num_rows + 1)), numpy(stable_order(before) - 1)),
    )
