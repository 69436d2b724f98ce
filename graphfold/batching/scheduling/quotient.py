"""Quotient: a batch in which equal nodes are one, which is all that plans see of the graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphfold.batching.scheduling.classes import Classes
from graphfold.batching.scheduling.edges import Edges, depth_of_pass
from graphfold.batching.scheduling.passes import Pass, Up
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray


@dataclass(frozen=True, eq=False)
class Quotient:
    """The classes of equal nodes as nodes.

    Each has the edges of its representative, and thus as many as every node of the class.

    Args:
        dag: the batch, on the CPU.
        classes: the equal nodes; None if there are none.
    """

    dag: TypedDAG
    classes: Classes | None = None

    def of_nodes(self, column: IntArray) -> IntArray:
        """[num_classes] what the nodes have, [num_nodes]."""
        return column if self.classes is None else column[self.classes.representative]

    def edges(self, item: Pass) -> Edges:
        """What they read in a pass; raises SchemaError if the schema lacks its relation."""
        edges = Edges.of_pass(self.dag, item)
        if self.classes is None:
            return edges
        return edges.select(self.classes.representative, np.append(self.classes.inverse, -1))

    def depth(self, item: Pass, edges: Edges) -> IntArray:
        """[num_classes] the longest path that ends in each, along `edges` of a pass up or down."""
        depth = depth_of_pass(self.dag, item, edges)
        return self.of_nodes(depth) if isinstance(item, Up) else depth
