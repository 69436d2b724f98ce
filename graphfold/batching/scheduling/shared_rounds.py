"""Plans of rounds of message passing in which nodes with equal surroundings are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.pass_schedule import Group, PassSchedule
from graphfold.batching.scheduling.readers import find_readers
from graphfold.batching.scheduling.sharing import Distinct
from graphfold.batching.scheduling.sources import CellInputs
from graphfold.dag.depth import stable_order


def plan_shared_rounds(
    edges: Edges, inputs: CellInputs, before: PassSchedule, stages: Sequence[Distinct]
) -> PassSchedule:
    """The plan of rounds, each with rows of its own.

    Args:
        edges: whose neighbour is who.
        inputs: the type of each node, and the row of `x` that it is given.
        before: the plan with the rows of the state before the first round.
        stages: which nodes are equal after each round.

    Returns:
        The plan of the last round; its `rounds` are the others, that before the first among them.
        The edges of a plan name rows of the plan before.
    """
    plans = [before]
    for distinct in stages:
        plans.append(_plan(edges, inputs, distinct, plans[-1]))
    return replace(plans[-1], rounds=tuple(plans[:-1]))


def plan_without_edges(inputs: CellInputs, distinct: Distinct) -> PassSchedule:
    """The rows of the state before the first round."""
    none = np.zeros(0, dtype=np.int64)
    ptr = np.zeros(len(inputs.op_type) + 1, dtype=np.int64)
    return _plan(Edges(ptr, none, none, none), inputs, distinct, None)


def _plan(
    edges: Edges, inputs: CellInputs, distinct: Distinct, before: PassSchedule | None
) -> PassSchedule:
    """The plan of one round; its edges name rows of the plan `before`."""
    op_type, num_types = inputs.op_type, len(inputs.sizes)
    order = stable_order(op_type[distinct.node])
    node = distinct.node[order]
    row = np.empty_like(order)
    row[order] = np.arange(1, len(order) + 1)
    row = row[distinct.of]
    read = row if before is None else before.row.numpy()
    chosen = edges.select(node, np.append(read, 0))
    num_read = len(node) if before is None else before.num_rows
    bounds = np.searchsorted(op_type[node], np.arange(num_types + 1))
    readers = find_readers(chosen.child, num_read)
    pairs = op_type[node[chosen.parent]] * num_types + op_type[edges.child[chosen.number]]
    return PassSchedule(
        groups=tuple(_groups(bounds.tolist(), chosen.ptr[bounds].tolist())),
        row=torch.from_numpy(row),
        node=torch.from_numpy(node),
        child_ptr=torch.from_numpy(chosen.ptr),
        child_row=torch.from_numpy(chosen.child),
        parent=torch.from_numpy(chosen.parent - bounds[op_type[node[chosen.parent]]]),
        edge=torch.from_numpy(chosen.number),
        type_order=inputs.in_order(node),
        read_types=frozenset(
            divmod(pair, num_types) for pair in np.bincount(pairs).nonzero()[0].tolist()
        ),
        reader_ptr=torch.from_numpy(readers.ptr),
        reader_edge=torch.from_numpy(readers.edge),
        reader=torch.from_numpy(chosen.parent[readers.edge]),
        reader_of_row=None,
    )


def _groups(bounds: list[int], edge_bounds: list[int]) -> Iterator[Group]:
    """One group for each type that has rows."""
    pairs = zip(pairwise(bounds), pairwise(edge_bounds), strict=True)
    for op_type, ((start, stop), (first_edge, last_edge)) in enumerate(pairs):
        if start < stop:
            yield Group(op_type, start + 1, stop + 1, first_edge, last_edge, 0, -1, -1, 0)
