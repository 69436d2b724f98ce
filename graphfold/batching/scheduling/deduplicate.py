"""Deduplication: which nodes of a batch must come to equal states, so that one stands for all.

Every pass divides the classes of equal nodes that it is given, and joins none. So nodes that are
equal after the last pass are so after every other, and one representative of each class is right
for all of them.

Whether two nodes are equal does not depend on what else there is: nodes of a batch are equal if and
only if they are so in the corpus. So a loader finds them once for all its batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from graphfold.batching.kernels.row_numbers import (
    Classes,
    Numbers,
    edge_numbers,
    first_equal,
    node_numbers,
)
from graphfold.batching.scheduling.edges import Edges, depth_of_pass, relation_numbers
from graphfold.batching.scheduling.passes import Pass, Rounds
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, count_pointers, run_numbers, stable_order


class EqualNodes(NamedTuple):
    """The nodes that come to equal states; all else is of these classes, not of the nodes."""

    final: Classes  # of nodes that are equal after all passes
    own: Classes  # of equal type and features
    # Before and after each round: a number of each class, which is that of those that it still
    # equals then; None where it equals no other.
    stages: tuple[Numbers | None, ...]
    begin: tuple[int, ...]  # of each pass, if it is rounds, the stage before the first
    depth: tuple[IntArray | None, ...]  # of each pass up or down, see `depth_of_pass`

    def among(self, nodes: IntArray) -> EqualNodes:
        """The quotient of some nodes alone, renumbered."""
        final = self.final.among(nodes)
        kept = self.final.inverse[nodes[final.representative]]
        stages = tuple(stage and stage.at(kept) for stage in self.stages)
        depth = tuple(None if own is None else own[kept] for own in self.depth)
        return EqualNodes(final, self.own.among(kept), stages, self.begin, depth)


def deduplicate(dag: TypedDAG, passes: Sequence[Pass]) -> EqualNodes:
    """Finds the equal nodes of graphs.

    Two nodes are equal after a pass if they were so before it and read, in the same order, nodes
    that are equal after it, or before the same round, over edges with equal columns. Columns are
    compared bit by bit.

    Args:
        dag: a batch or a whole corpus, on the CPU.
        passes: the passes of the model, in order.

    Raises:
        SchemaError: if a pass names a relation that the schema lacks.
    """
    own = final = Classes.of_equal(node_numbers(dag))
    stages: list[Classes] = []
    begin: list[int] = []
    depth: list[IntArray | None] = []
    for item in passes:
        edges = Edges.of_pass(dag, item)
        read = _Reading(edges, edge_numbers(dag, item.spaces), relation_numbers(dag, item))
        if isinstance(item, Rounds):
            if not (stages and stages[-1] is final):
                stages.append(final)
            begin.append(len(stages) - 1)
            depth.append(None)
            stages += _after_rounds(read, item.rounds, final)
            final = stages[-1]
        else:
            begin.append(0)
            found = depth_of_pass(dag, item, read.edges)
            depth.append(found)
            final = _after_levels(read, found, final)
    kept = final.representative
    return EqualNodes(
        final,
        own.among(kept),
        tuple(None if stage is final else stage.numbers.at(kept) for stage in stages),
        tuple(begin),
        tuple(None if own is None else own[kept] for own in depth),
    )


class _Reading(NamedTuple):
    """The edges of the nodes in a pass."""

    edges: Edges
    columns: Numbers  # a number per edge of the graph that tells its columns
    relation: IntArray  # of each edge of the graph, see `relation_numbers`

    def keys(self, nodes: IntArray, slots: IntArray, first: IntArray) -> Iterator[Numbers]:
        """Columns that agree for nodes that read the same, if they have as many edges.

        Args:
            nodes: they.
            slots: [num_slots, num_nodes] their edges.
            first: [any] the first of the nodes that each node equals; the last for an absent one.
        """
        for slot in slots:
            yield Numbers(first[self.edges.child[slot]], len(first))
            if self.columns.size > 1:
                yield Numbers(self.columns.value[self.edges.number[slot]], self.columns.size)


def _after_levels(read: _Reading, depth: IntArray, before: Classes) -> Classes:
    """The classes after a pass up or down.

    A node can have an equal only if each node that it reads has one, or has another reader: if it
    is followed. So this goes level by level, looks at the nodes that read followed ones only, and
    ends above a level where none is: in a batch of trees that differ, far below the roots.
    """
    child, size = read.edges.child, np.bincount(before.inverse)
    # An absent node is -1 and finds the last entry of both: it differs from all, and is followed.
    first = np.arange(len(depth) + 1)
    is_followed = np.append(np.bincount(child + 1, minlength=len(first))[1:] > 1, True)
    last_read_twice = depth[is_followed[:-1]].max(initial=-1)
    for index, level in enumerate(_levels(depth)):
        repeated = level[size[before.inverse[level]] > 1]
        for nodes, slots in _by_degree(repeated, read.edges.ptr):
            if len(slots):
                may_equal = is_followed[child[slots]].all(0)
                nodes, slots = nodes[may_equal], slots[:, may_equal]
            if len(nodes) > 1:
                own = before.numbers.at(nodes)
                first[nodes] = nodes[first_equal([own, *read.keys(nodes, slots, first)])]
        merged = repeated[first[repeated] != repeated]
        is_followed[merged] = is_followed[first[merged]] = True
        if len(merged) == 0 and index > last_read_twice:
            break
    return Classes.of_first(first[:-1])


def _levels(depth: IntArray) -> Iterator[IntArray]:
    """The nodes of each depth, in order."""
    order = stable_order(depth)
    bounds = count_pointers(depth, 0).tolist()
    return (order[start:stop] for start, stop in pairwise(bounds))


def _by_degree(nodes: IntArray, ptr: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """The nodes of each number of edges, and these edges, [num_edges, num_nodes]."""
    count = ptr[nodes + 1] - ptr[nodes]
    for degree in np.bincount(count).nonzero()[0].tolist():
        own = nodes[count == degree]
        yield own, ptr[own] + np.arange(degree)[:, None]


def _after_rounds(read: _Reading, num_rounds: int, before: Classes) -> Iterator[Classes]:
    """The classes after each round of message passing."""
    # A cell may read how many neighbours, itself left out, its neighbour has along each relation;
    # after a round, equal nodes have equal edges.
    reader, num_nodes = run_numbers(read.edges.ptr), len(before.inverse)
    is_other, relation = read.edges.child != reader, read.relation[read.edges.number]
    own = [before.numbers]
    for number in range(relation.max(initial=0) + 1):
        others = np.bincount(reader[is_other & (relation == number)], minlength=num_nodes)
        own.append(Numbers(others, int(others.max(initial=0)) + 1))
    seen = first_equal(own)
    for _ in range(num_rounds):
        before = _after_round(read, before, seen)
        seen = before.first
        yield before


def _after_round(read: _Reading, before: Classes, seen: IntArray) -> Classes:
    """The classes after one round; `seen` are the first nodes as far as neighbours can tell."""
    first, size = np.arange(len(seen)), np.bincount(before.inverse)
    repeated = np.flatnonzero(size[before.inverse] > 1)
    for nodes, slots in _by_degree(repeated, read.edges.ptr):
        own = before.numbers.at(nodes)
        first[nodes] = nodes[first_equal([own, *read.keys(nodes, slots, seen)])]
    return Classes.of_first(first)
