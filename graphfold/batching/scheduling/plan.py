"""Plans: from the step of every node to rows, edges and groups."""

from __future__ import annotations

import numpy as np
import torch

from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.kernels.row_numbers import Classes
from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.sources import CellInputs
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
    edges = edges.select(order, row)
    groups = _groups(types, size[is_group], edges)
    as_run = tuple(groups[number] for number in stable_order(steps).tolist())
    return _plan(inputs, edges, order, row, as_run, inputs.in_order(order))


def plan_round(inputs: CellInputs, edges: Edges, classes: Classes | None = None) -> PassSchedule:
    """The plan of a round of message passing, in which all nodes run at once.

    Args:
        inputs: the type of each node, and the row of `x` that it is given.
        edges: what the nodes read, or, where there are classes, the nodes of the graphs.
        classes: of equal nodes, which are the nodes then; a class reads what its first node does.
    """
    order, ptr = inputs.by_type
    row = _rows(order)
    size = ptr[1:] - ptr[:-1]
    types = size.nonzero()[0]
    if classes is None:
        edges = edges.select(order, row)
    else:
        edges = edges.select(classes.representative[order], row[np.append(classes.inverse, -1)])
    groups = _groups(types, size[types], edges)
    return _plan(inputs, edges, order, row, groups, inputs.in_type_order)


def _rows(order: IntArray) -> IntArray:
    """[num_nodes + 1] the row of each node, and last of an absent child."""
    row = np.zeros(len(order) + 1, dtype=np.int64)
    row[order] = np.arange(1, len(order) + 1)
    return row


def _plan(
    inputs: CellInputs,
    edges: Edges,
    order: IntArray,
    row: IntArray,
    groups: tuple[Group, ...],
    type_order: tuple[RowIndex | None, ...],
) -> PassSchedule:
    """The plan of nodes in an order.

    Args:
        inputs: the type of each node.
        edges: of the nodes in their order; what is read is a row.
        order: the node of each row, row 1 first.
        row: [num_nodes + 1] the row of each node.
        groups: in the order in which they run.
        type_order: by type, the row of `x` that each of its nodes is given.
    """
    return PassSchedule(
        groups=groups,
        row=torch.from_numpy(row[:-1]),
        node=torch.from_numpy(order),
        child_ptr=torch.from_numpy(edges.ptr),
        child_row=torch.from_numpy(edges.child),
        reading=torch.from_numpy(edges.parent),
        edge=torch.from_numpy(edges.number),
        type_order=type_order,
        read_types=_read_types(inputs.op_type[order], edges, len(inputs.sizes)),
    )


def _groups(types: IntArray, size: IntArray, edges: Edges) -> tuple[Group, ...]:
    """Groups from their types and sizes, in row order; rows are positions plus one."""
    bounds = run_pointers(size)
    starts, edge_bounds = (bounds + 1).tolist(), edges.ptr[bounds].tolist()
    columns = types.tolist(), starts[:-1], starts[1:], edge_bounds[:-1], edge_bounds[1:]
    return tuple(map(Group._make, zip(*columns, strict=True)))


def _read_types(op_type: IntArray, edges: Edges, num_types: int) -> frozenset[tuple[int, int]]:
    """The types that each type reads, from the types of the rows; `edges` name rows."""
    read = np.append(num_types, op_type)  # row 0, the absent child, is of a type of its own
    pairs = op_type[edges.parent] * (num_types + 1) + read[edges.child]
    found = (divmod(pair, num_types + 1) for pair in np.bincount(pairs).nonzero()[0].tolist())
    return frozenset(pair for pair in found if pair[1] < num_types)
