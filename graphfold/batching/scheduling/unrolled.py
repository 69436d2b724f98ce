"""Unrolled rounds: message passing as one pass over nodes (v, t), which read (u, t - 1).

Rows are sorted by type, then by round, so that a field takes memory only for the types that have
it; groups run round by round. The op type of (v, t) is that of v plus t times the number of types:
rounds may have cells of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.readers import find_readers
from graphfold.dag.depth import IntArray


@dataclass(frozen=True, eq=False)
class UnrolledRounds:
    """The plan of all rounds of a pass, and how rows of one round follow those of the last.

    Args:
        plan: with the rows of every round, the state before the first among them.
        first: [num_rounds + 1][num_types] the first row of a type in a round.
        size: [num_rounds + 1][num_types] how many rows it has there.
        previous_row: [num_rows + 1] the row of the same node in the round before; 0 for none.
    """

    plan: PassSchedule
    first: Sequence[Sequence[int]]
    size: Sequence[Sequence[int]]
    previous_row: Tensor


def unroll(plans: Sequence[PassSchedule], num_types: int) -> UnrolledRounds:
    """The plan of rounds as one.

    Args:
        plans: of the state before the first round, then of each round; edges name rows of the plan
            before.
        num_types: how many types the schema has.
    """
    groups = [{group.op_type: group for group in plan.groups} for plan in plans]
    size = [[g[t].size if t in g else 0 for t in range(num_types)] for g in groups]
    first = _first_rows(size)
    rows = [_new_rows(plan, first[number]) for number, plan in enumerate(plans)]
    table, child, edge, counts, previous = [], [], [], [], []
    num_edges = 0
    for op_type in range(num_types):
        for number, plan in enumerate(plans):
            group = groups[number].get(op_type)
            if group is None:
                continue
            start, count = first[number][op_type], group.size
            code = op_type + number * num_types
            edges = slice(group.edge_start, group.edge_stop) if number else slice(0, 0)
            size_edges = edges.stop - edges.start
            table.append(
                Group(code, start, start + count, num_edges, num_edges + size_edges, 0, -1, -1, 0)
            )
            num_edges += size_edges
            if number:
                before = rows[number - 1]
                child.append(before[plan.child_row.numpy()[edges]])
                edge.append(plan.edge.numpy()[edges])
                ptr = plan.child_ptr.numpy()[group.start - 1 : group.stop]
                counts.append(np.diff(ptr))
                node = plan.node.numpy()[group.positions]
                previous.append(before[plans[number - 1].row.numpy()[node]])
            else:
                counts.append(np.zeros(count, np.int64))
                previous.append(np.zeros(count, np.int64))
    return _assemble(plans, num_types, table, child, edge, counts, previous, first, size)


def _first_rows(size: Sequence[Sequence[int]]) -> list[list[int]]:
    first, row = [[0] * len(own) for own in size], 1
    for op_type in range(len(size[0])):
        for number, own in enumerate(size):
            first[number][op_type] = row
            row += own[op_type]
    return first


def _new_rows(plan: PassSchedule, first: Sequence[int]) -> IntArray:
    """[num_rows + 1] the unrolled row of each row of a round; row 0 stays."""
    rows = np.zeros(plan.num_rows + 1, np.int64)
    for group in plan.groups:
        rows[group.rows] = np.arange(first[group.op_type], first[group.op_type] + group.size)
    return rows


def _assemble(
    plans: Sequence[PassSchedule],
    num_types: int,
    table: list[Group],
    child: list[IntArray],
    edge: list[IntArray],
    counts: list[IntArray],
    previous: list[IntArray],
    first: list[list[int]],
    size: list[list[int]],
) -> UnrolledRounds:
    child_row, count = _joined(child), _joined(counts)
    num_rows = len(count)
    ptr = np.concatenate([np.zeros(1, np.int64), count.cumsum()])
    readers = find_readers(child_row, num_rows)
    parent = np.arange(num_rows).repeat(count)
    previous_row = np.concatenate([np.zeros(1, np.int64), *previous])
    order = np.argsort(previous_row, kind="stable")
    previous_ptr = np.searchsorted(previous_row[order], np.arange(num_rows + 2))
    numpy = torch.from_numpy
    plan = PassSchedule(
        groups=tuple(sorted(table, key=lambda group: group.op_type // num_types)),
        row=plans[-1].row,
        node=numpy(np.zeros(num_rows, np.int64)),
        child_ptr=numpy(ptr),
        child_row=numpy(child_row),
        parent=numpy(parent),
        edge=numpy(_joined(edge)),
        type_order=(None,) * (num_types * len(plans)),
        read_types=frozenset(),
        reader_ptr=numpy(readers.ptr),
        reader_edge=numpy(readers.edge),
        reader=numpy(parent[readers.edge]),
        reader_of_row=None if readers.of_row is None else numpy(readers.of_row),
        following=(numpy(previous_ptr), numpy(order - 1)),
    )
    return UnrolledRounds(plan, first, size, numpy(previous_row))


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
