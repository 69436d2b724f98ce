"""Plans: from the step of every node to rows, edges and groups."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.kernels.row_numbers import Classes
from graphfold.batching.scheduling.edges import Edges, edges_of_nodes, relation_numbers
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.passes import Rounds
from graphfold.batching.scheduling.sources import CellInputs
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, run_pointers, stable_order


def plan_levels(
    inputs: CellInputs, edges: Edges, step: IntArray, rank: IntArray | None = None
) -> PassSchedule:
    """The plan of a pass up or down.

    Args:
        inputs: the type of each node, and the row of `x` that it is given.
        edges: what the nodes read in this pass.
        step: [num_nodes] when each node runs, from a policy.
        rank: [num_nodes] what the rows of a group are sorted by; None for node order.
    """
    num_steps = step.max(initial=0) + 1
    key = inputs.op_type * num_steps + step
    order = stable_order(key if rank is None else key * (rank.max(initial=0) + 1) + rank)
    row = _rows(order)
    size = np.bincount(key)
    is_group = size.nonzero()[0]
    types, steps = np.divmod(is_group, num_steps)
    groups = _Groups(types, size[is_group], stable_order(steps))
    return _plan(edges.select(order, row), order, row, groups, inputs.in_order(order))


def plan_round(
    dag: TypedDAG, item: Rounds, inputs: CellInputs, classes: Classes | None = None
) -> PassSchedule:
    """The plan of a round of message passing, in which all nodes run at once.

    Args:
        dag: the graphs.
        item: the rounds.
        inputs: the type of each node, and the row of `x` that it is given.
        classes: of equal nodes, which are the nodes then; a class reads what its first node does.
    """
    order, ptr = inputs.by_type
    row = _rows(order)
    size = ptr[1:] - ptr[:-1]
    types = size.nonzero()[0]
    node = order if classes is None else classes.representative[order]
    read = edges_of_nodes(dag, item, node)
    loops = read.child == node[read.parent]
    child = read.child if classes is None else classes.inverse[read.child]
    read = read._replace(child=row[child])
    groups = _Groups(types, size[types], np.arange(len(types)))
    plan = _plan(read, order, row, groups, inputs.in_type_order)
    if loops.any():
        plan = replace(plan, loop=torch.from_numpy(loops.astype(np.int64)))
    if len(item.relations) > 1:
        relation = relation_numbers(dag, item)[read.number]
        plan = replace(plan, relation=torch.from_numpy(relation))
    return plan


def _rows(order: IntArray) -> IntArray:
    """[num_nodes + 1] the row of each node, and last of an absent child."""
    row = np.zeros(len(order) + 1, dtype=np.int64)
    row[order] = np.arange(1, len(order) + 1)
    return row


class _Groups(NamedTuple):
    """The groups of a plan, as their rows lie."""

    types: IntArray  # [num_groups] the type of each
    size: IntArray  # [num_groups] how many rows it has
    run: IntArray  # [num_groups] the numbers of the groups, in the order in which they run


def _plan(
    edges: Edges,
    order: IntArray,
    row: IntArray,
    groups: _Groups,
    type_order: tuple[RowIndex | None, ...],
) -> PassSchedule:
    """The plan of nodes in an order.

    Args:
        edges: of the nodes in their order; what is read is a row.
        order: the node of each row, row 1 first.
        row: [num_nodes + 1] the row of each node.
        groups: their slices of these rows.
        type_order: by type, the row of `x` that each of its nodes is given.
    """
    types, size, run = groups
    bounds = run_pointers(size)
    starts, edge_starts = bounds + 1, edges.ptr[bounds]
    columns = [types, starts[:-1], starts[1:], edge_starts[:-1], edge_starts[1:]]
    as_run = np.array(columns).T[run].tolist()
    row_type, num_types = np.empty(len(row), np.int64), len(type_order)
    row_type[0] = num_types  # the absent child is of a type of its own
    row_type[1:] = types.repeat(size)
    reads = (types * (num_types + 1)).repeat(columns[4] - columns[3]) + row_type[edges.child]
    pairs = (divmod(pair, num_types + 1) for pair in np.bincount(reads).nonzero()[0].tolist())
    return PassSchedule(
        groups=tuple(map(Group._make, as_run)),
        row=torch.from_numpy(row[:-1]),
        node=torch.from_numpy(order),
        child_ptr=torch.from_numpy(edges.ptr),
        child_row=torch.from_numpy(edges.child),
        reading=torch.from_numpy(edges.parent),
        edge=torch.from_numpy(edges.number),
        type_order=type_order,
        read_types=frozenset(pair for pair in pairs if pair[1] < num_types),
    )
