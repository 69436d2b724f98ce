"""VirtualNode: one further node in every graph, joined with all others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.dag.typed_dag import Relation, pointers, ragged_arange, repeat
from graphfold.layers.added_nodes import AddedNodes, with_type

#: The type of the node. Its only feature is one code, so that an encoder learns its first state.
VIRTUAL = NodeType("virtual", 0, (Column("kind", "uint8", size=1),))


@dataclass(frozen=True)
class VirtualNode:
    """Adds a node to every graph, with an edge of a relation from and to each other node.

    The latent master node of Gilmer et al. (2017), https://arxiv.org/abs/1704.01212, section 5.2:
    two rounds carry a message from any node to any other. Every column of codes of the edges gets
    one more code for the new edges; their columns of numbers are zero. Readouts ignore the node.

    Args:
        relation: the relation of the new edges.
    """

    relation: str

    def schema(self, schema: Schema) -> Schema:
        """The schema of the graphs with the node, without targets of nodes.

        Raises:
            ConfigError: if there is a type of this name.
            SchemaError: if there is no such relation.
        """
        edge = schema.relation(self.relation)
        columns = (c if c.size is None else replace(c, size=c.size + 1) for c in edge.features)
        return with_type(schema, VIRTUAL, EdgeType(edge.name, tuple(columns)))

    def lower(self, dag: TypedDAG, num_workers: int = 0) -> TypedDAG:
        """The graphs with the node, which is the last of each; an empty graph stays empty.

        Args:
            dag: the graphs, on the CPU.
            num_workers: not used, the work is fast.
        """
        is_full = (dag.node_ptr.diff() > 0).long()
        nodes, graphs = AddedNodes.at_the_end(dag, is_full), torch.nonzero(is_full).view(-1)
        joined, old = _joined(dag.relations[self.relation], nodes, dag.node_ptr.diff()[graphs])
        columns = {}
        for column in dag.schema.relation(self.relation).features:
            values = dag.columns[f"relation:{self.relation}"][column.name]
            extended = values.new_full((len(joined.index), *values.shape[1:]), column.size or 0)
            columns[column.name] = extended.index_copy_(0, old, values)
        kind = graphs.new_zeros(len(graphs), dtype=torch.uint8)
        return nodes.make(
            self.schema(dag.schema),
            graphs,
            {"kind": kind},
            {self.relation: joined},
            {self.relation: columns},
        )


def _joined(relation: Relation, nodes: AddedNodes, sizes: Tensor) -> tuple[Relation, Tensor]:
    """The relation with the edges from and to the added nodes; the new places of the old edges.

    The edge from the added node is the last of each other node.

    Args:
        relation: the relation before.
        nodes: the added nodes, one in each graph.
        sizes: [num_added] the number of other nodes in the graph of each.
    """
    count = relation.ptr.diff()
    ptr = pointers(nodes.place(count + 1, sizes))
    old = ragged_arange(ptr[:-1][nodes.number], count)
    index = relation.index.new_empty(int(ptr[-1]))
    index[old] = nodes.number[relation.index]
    index[ptr[1:][nodes.number] - 1] = repeat(nodes.added, sizes)
    index[ragged_arange(ptr[:-1][nodes.added], sizes)] = nodes.number
    return Relation(ptr, index), old
