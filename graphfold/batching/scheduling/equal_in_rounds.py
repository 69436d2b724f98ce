"""Equal nodes in rounds of message passing: those with equal surroundings.

After t rounds the state of a node depends on what lies within t steps of it, and there molecules
repeat each other. In 64 molecules of Lipophilicity, the 3,708 directed bonds begin in 86 states,
and are in 631 after one round and in 1,589 after two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.passes import Rounds
from graphfold.batching.scheduling.sharing import (
    Distinct,
    Numbers,
    distinct_nodes,
    merge_equal,
    row_numbers,
)
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray


class _Neighbours(NamedTuple):
    """What the rounds follow."""

    edges: Edges
    edge: Numbers  # a number per edge that tells its columns
    degree: IntArray  # [num_nodes] how many neighbours each node has


def find_equal_in_rounds(dag: TypedDAG, item: Rounds, given: Distinct) -> Iterator[Distinct]:
    """Which nodes are equal after each round.

    Two nodes are equal after a round if they were so before it and had, in the same order, equal
    neighbours over edges with equal columns; equal neighbours have the same number of neighbours.

    Args:
        dag: the graphs.
        item: whose neighbour is who, and how many rounds there are.
        given: which nodes are equal before the first round.

    Raises:
        SchemaError: if the schema lacks the relation.
    """
    neighbours = _find_neighbours(dag, item.relation)
    degree = neighbours.degree
    same_as = given.node[given.of]
    # A cell may ask how many neighbours its neighbour has; after a round, the state tells.
    seen = _split(same_as, Numbers(degree, int(degree.max(initial=0)) + 1))
    for _ in range(item.rounds):
        same_as = seen = _refined(neighbours, same_as, seen)
        yield distinct_nodes(same_as)


def _find_neighbours(dag: TypedDAG, relation: str) -> _Neighbours:
    edges = Edges.of_relation(dag, relation)
    columns = (column.numpy() for column in dag.columns[f"relation:{relation}"].values())
    return _Neighbours(edges, row_numbers(columns, len(edges.child)), np.diff(edges.ptr))


def _split(same_as: IntArray, key: Numbers) -> IntArray:
    """Which nodes are still the same if their keys must agree as well."""
    new = same_as.copy()
    merge_equal(np.arange(len(new)), [Numbers(same_as, len(same_as)), key], new)
    return new


def _refined(neighbours: _Neighbours, same_as: IntArray, seen: IntArray) -> IntArray:
    """[num_nodes] the first of the nodes that are equal after one more round.

    Args:
        neighbours: of all nodes.
        same_as: [num_nodes] the first of the nodes that are equal before.
        seen: [num_nodes] the same, as far as neighbours can tell.
    """
    edges, edge, degree = neighbours
    new = np.arange(len(same_as))
    repeated = np.bincount(same_as, minlength=len(same_as))[same_as] > 1
    for number in np.flatnonzero(np.bincount(degree[repeated])):
        nodes = np.flatnonzero(repeated & (degree == number))
        keys = [Numbers(same_as[nodes], len(same_as))]
        for slot in range(number):
            own = edges.ptr[nodes] + slot
            keys.append(Numbers(seen[edges.child[own]], len(seen)))
            if edge.size > 1:
                keys.append(Numbers(edge.value[own], edge.size))
        merge_equal(nodes, keys, new)
    return new
