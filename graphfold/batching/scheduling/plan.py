"""Plans: from the step of every node to rows, edges and groups in execution order."""

from __future__ import annotations

import numpy as np
import torch

from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.readers import Readers, find_readers, first_children, first_edges
from graphfold.batching.scheduling.sharing import Distinct
from graphfold.dag.depth import IntArray, stable_order


def plan_pass(
    op_type: IntArray,
    num_types: int,
    edges: Edges,
    step: IntArray,
    rank: IntArray | None = None,
    distinct: Distinct | None = None,
) -> PassSchedule:
    """The plan of one pass.

    Args:
        op_type: [num_nodes] the type of each node.
        num_types: how many types the schema has.
        edges: what the nodes read in this pass.
        step: [num_nodes] when each node runs, from a policy.
        rank: [num_nodes] what the rows of a group are sorted by; None for node order.
        distinct: which nodes stand for others. The arrays above, but for `op_type`, are then those
            of these nodes only; None if every node stands for itself.
    """
    own_type = op_type if distinct is None else op_type[distinct.node]
    key = step * num_types + own_type
    order = stable_order(key if rank is None else key * (rank.max(initial=0) + 1) + rank)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    edges = edges.select(order, position)
    child_row = edges.child + 1
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    bounds = np.append(starts, len(order))
    first = np.repeat(starts, np.diff(bounds))  # position of the first row of each row's group
    readers = find_readers(child_row, len(order))
    row, node = position + 1, order
    if distinct is not None:
        row, node = row[distinct.of], distinct.node[node]
    return PassSchedule(
        groups=_groups(own_type[order], bounds, edges.ptr, child_row, readers),
        row=torch.from_numpy(row),
        node=torch.from_numpy(node),
        child_ptr=torch.from_numpy(edges.ptr),
        child_row=torch.from_numpy(child_row),
        parent=torch.from_numpy(edges.parent - first[edges.parent]),
        edge=torch.from_numpy(edges.number),
        type_order=tuple(_type_order(op_type, node, t) for t in range(num_types)),
        read_types=_read_types(own_type[order], edges, num_types),
        reader_ptr=torch.from_numpy(readers.ptr),
        reader_edge=torch.from_numpy(readers.edge),
        reader=torch.from_numpy(edges.parent[readers.edge]),
        reader_of_row=None if readers.of_row is None else torch.from_numpy(readers.of_row),
    )


def _groups(
    op_type: IntArray, bounds: IntArray, child_ptr: IntArray, child_row: IntArray, readers: Readers
) -> tuple[Group, ...]:
    """Groups from the first position of each, in row order; rows are positions plus one."""
    types = op_type[bounds[:-1]]
    size = np.diff(bounds)
    type_start = np.empty_like(size)
    for index in np.flatnonzero(np.bincount(types)):
        own = types == index
        type_start[own] = np.cumsum(size[own]) - size[own]
    edge_bounds = child_ptr[bounds]
    first_edge, num_read = first_edges(child_row, readers, bounds + 1)
    columns = [
        types,
        bounds[:-1] + 1,
        bounds[1:] + 1,
        edge_bounds[:-1],
        edge_bounds[1:],
        type_start,
        first_children(child_row, edge_bounds),
        first_edge,
        num_read,
    ]
    return tuple(map(Group._make, zip(*(column.tolist() for column in columns), strict=True)))


def _type_order(op_type: IntArray, node: IntArray, index: int) -> torch.Tensor | None:
    """The rows' nodes of a type, numbered within the type; None if these are all, in node order."""
    is_type = op_type == index
    in_row_order = node[is_type[node]]
    if np.all(in_row_order[1:] > in_row_order[:-1]) and len(in_row_order) == is_type.sum():
        return None
    return torch.from_numpy((np.cumsum(is_type) - 1)[in_row_order])


def _read_types(op_type: IntArray, edges: Edges, num_types: int) -> frozenset[tuple[int, int]]:
    child, parent = edges.present()
    reads = op_type[parent] * num_types + op_type[child]
    found = np.flatnonzero(np.bincount(reads, minlength=1))
    return frozenset((int(pair) // num_types, int(pair) % num_types) for pair in found)
