"""Sources: under plans that share, the nodes whose inputs cells are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.scheduling.pass_schedule import PassSchedule
from graphfold.batching.scheduling.sharing import Distinct
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray


class Sources(NamedTuple):
    """The nodes of one type that stand for all nodes of the type with the same features."""

    node: Tensor  # [num_sources] int64, numbered within the type
    of: Tensor  # [num_nodes_of_type] int64, the position in `node` of the one with equal features


def sources_by_type(dag: TypedDAG, distinct: Distinct) -> tuple[Sources, ...]:
    """The sources of each type.

    Args:
        dag: the graphs.
        distinct: the nodes that differ in type or features.
    """
    op_type = dag.op_type.numpy()
    within = _number_within_type(op_type)
    position = _number_within_type(op_type[distinct.node])[distinct.of]
    found = []
    for index in range(len(dag.schema.types)):
        own = distinct.node[op_type[distinct.node] == index]
        of = position[op_type == index]
        found.append(Sources(torch.from_numpy(within[own]), torch.from_numpy(of)))
    return tuple(found)


def read_sources(
    plans: Iterable[PassSchedule], dag: TypedDAG, sources: Sequence[Sources]
) -> tuple[PassSchedule, ...]:
    """The plans for inputs of the sources only, one row for each."""
    op_type = dag.op_type.numpy()
    within = _number_within_type(op_type)

    def read(plan: PassSchedule) -> PassSchedule:
        node = plan.node.numpy()
        rows = (within[node[op_type[node] == index]] for index in range(len(sources)))
        orders = tuple(_order(own, nodes) for own, nodes in zip(sources, rows, strict=True))
        return replace(plan, type_order=orders, rounds=tuple(map(read, plan.rounds)))

    return tuple(map(read, plans))


def _order(sources: Sources, nodes: IntArray) -> Tensor | None:
    """The source of each row's node; None if the rows are just the sources in their order."""
    if np.array_equal(nodes, sources.node.numpy()):
        return None
    return sources.of[torch.from_numpy(nodes)]


def _number_within_type(op_type: IntArray) -> IntArray:
    """[n] how many before each are of its type."""
    number = np.empty_like(op_type)
    for index in np.flatnonzero(np.bincount(op_type)):
        own = op_type == index
        number[own] = np.arange(np.count_nonzero(own))
    return number
