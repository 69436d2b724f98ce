"""Edges: the child edges of a pass, as the scheduler sees them, and their readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from graphfold.batching.scheduling.passes import Down, Pass, Rounds, Up
from graphfold.dag import TypedDAG
from graphfold.dag.depth import (
    IntArray,
    count_pointers,
    find_cycle,
    longest_path,
    run_numbers,
    spread_runs,
    stable_order,
)
from graphfold.errors import GraphError


class Edges(NamedTuple):
    """Edges sorted by the node that reads; an absent slot has child -1."""

    ptr: IntArray  # [num_nodes + 1] where each node's edges begin
    child: IntArray  # [num_edges] the node that is read
    parent: IntArray  # [num_edges] the node that reads
    # [num_edges] the edge's number in the `TypedDAG`; of several relations, those of the second
    # follow those of the first, and so on.
    number: IntArray

    @staticmethod
    def from_csr(ptr: IntArray, child: IntArray) -> Edges:
        """The edges of inputs or of a relation."""
        return Edges(ptr, child, run_numbers(ptr), np.arange(len(child)))

    @staticmethod
    def joined(parts: Sequence[Edges]) -> Edges:
        """The edges of several relations; a node reads along the first of them first."""
        if len(parts) == 1:
            return parts[0]
        child, parent = (np.concatenate(own) for own in list(zip(*parts, strict=True))[1:3])
        order = stable_order(parent)
        ptr = count_pointers(parent, parts[0].num_nodes)
        return Edges(ptr, child[order], parent[order], order)

    @staticmethod
    def of_pass(dag: TypedDAG, item: Pass) -> Edges:
        """The edges that the nodes of graphs read in a pass.

        Raises:
            SchemaError: if it names a relation that the schema lacks.
        """
        edges = Edges.joined(
            [Edges.from_csr(ptr.numpy(), child.numpy()) for ptr, child in edges_of_pass(dag, item)]
        )
        return edges.reversed() if isinstance(item, Down) else edges

    @property
    def num_nodes(self) -> int:
        return len(self.ptr) - 1

    def present(self) -> tuple[IntArray, IntArray]:
        """(child, parent) of the edges that are not absent."""
        present = self.child >= 0
        if present.all():
            return self.child, self.parent
        return self.child[present], self.parent[present]

    def reversed(self) -> Edges:
        """Each node's readers in edge order; absent slots drop out."""
        present = (self.child >= 0).nonzero()[0]
        order = present[stable_order(self.child[present])]
        parent, child = self.child[order], self.parent[order]
        return Edges(count_pointers(parent, self.num_nodes), child, parent, self.number[order])

    def among(self, node: IntArray) -> Edges:
        """The edges of some nodes, [num_selected], renumbered; what they read is not."""
        own = _of_nodes(self.ptr, self.child, node)
        return own._replace(number=self.number[own.number])

    def select(self, node: IntArray, position: IntArray) -> Edges:
        """The edges of some nodes only, with the nodes renumbered.

        Args:
            node: [num_selected] the nodes whose edges stay, in their new order.
            position: [num_nodes + 1] the new number of what is read; that of nobody read is not
                used. The last is that of an absent slot: as child -1 it finds the last entry.
        """
        own = self.among(node)
        return own._replace(child=position[own.child])


def _of_nodes(ptr: IntArray, child: IntArray, node: IntArray) -> Edges:
    """`Edges.among` of inputs or of one relation."""
    start = ptr[node]
    own_ptr, parent, number = spread_runs(start, ptr[node + 1] - start)
    return Edges(own_ptr, child[number], parent, number)


def edges_of_nodes(dag: TypedDAG, item: Rounds, node: IntArray) -> Edges:
    """`Edges.among` of rounds, without the parent and the number of all edges."""
    parts = edges_of_pass(dag, item)
    if len(parts) > 1:
        return Edges.of_pass(dag, item).among(node)
    return _of_nodes(parts[0][0].numpy(), parts[0][1].numpy(), node)


def edges_of_pass(dag: TypedDAG, item: Pass) -> list[tuple[Tensor, Tensor]]:
    """([num_nodes + 1], [num_edges]) where each node's edges begin, and what they come from.

    Of each relation of the pass, or of the inputs.

    Raises:
        SchemaError: if the pass names a relation that the schema lacks.
    """
    if not item.relations:
        return [(dag.input_ptr, dag.input_index)]
    names = [dag.schema.relation(name).name for name in item.relations]
    return [(dag.relations[name].ptr, dag.relations[name].index) for name in names]


def relation_numbers(dag: TypedDAG, item: Pass) -> IntArray:
    """[num_edges] by the number of an edge, which of the pass's relations it is of."""
    return np.repeat(np.arange(len(item.spaces)), [dag.num_rows(space) for space in item.spaces])


def depth_of_pass(dag: TypedDAG, item: Up | Down, edges: Edges) -> IntArray:
    """[num_nodes] the longest path that ends in each node along the edges of a pass up or down.

    Raises:
        GraphError: if the edges, of a relation, have a cycle.
    """
    if isinstance(item, Up) and item.relation is None:
        return dag.depth.numpy()
    depth = longest_path(edges.num_nodes, source=edges.child, target=edges.parent)
    if (depth < 0).any():
        cycle = find_cycle(edges.child, edges.parent, depth < 0)
        file, line = dag.place(int(dag.batch[cycle[0]]))
        raise GraphError(
            f"{file}:{line}: the relation '{item.relation}' has a cycle of {len(cycle)} nodes, so "
            f"{type(item).__name__} cannot follow it. Use Rounds('{item.relation}', rounds).",
            cycle=cycle,
        )
    return depth
