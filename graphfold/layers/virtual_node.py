"""VirtualNode: a node of its own in every graph, joined with all others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.dag.typed_dag import Relation, pointers, ragged_arange, repeat
from graphfold.errors import ConfigError

#: The type of the node. Its only feature is one code, so that an encoder learns its first state.
VIRTUAL = NodeType("virtual", 0, (Column("kind", "uint8", size=1),))


@dataclass(frozen=True)
class VirtualNode:
    """Adds a node to every graph, with an edge of a relation from and to each other node.

    The latent master node of Gilmer et al. (2017), https://arxiv.org/abs/1704.01212, section 5.2:
    two rounds carry a message from any node to any other. Every column of codes of the edges has
    one more code, which tells these edges from others; their numbers are zero. Readouts do not see
    the node.

    Args:
        relation: the edges that it joins.
    """

    relation: str

    def schema(self, schema: Schema) -> Schema:
        """The schema of the graphs with the node; targets are those of the graphs without it.

        Raises:
            ConfigError: if there is a type of this name.
            SchemaError: if there is no such relation.
        """
        if any(node_type.name == VIRTUAL.name for node_type in schema.types):
            raise ConfigError(
                f"the data has a type '{VIRTUAL.name}' already. Set virtual_node=null."
            )
        own = schema.relation(self.relation)
        relations = [_with_code(edge) if edge is own else edge for edge in schema.relations]
        return replace(
            schema, types=(*schema.types, VIRTUAL), relations=tuple(relations), node_targets=()
        )

    def lower(self, dag: TypedDAG, num_workers: int = 0) -> TypedDAG:
        """The graphs with the node, which is the last of each; a graph without nodes gets none.

        Args:
            dag: the graphs, on the CPU.
            num_workers: not needed: it takes a moment.
        """
        is_full = (dag.node_ptr.diff() > 0).long()
        added = pointers(is_full)  # how many such nodes come before each graph
        graphs = torch.nonzero(is_full).view(-1)
        number = torch.arange(dag.num_nodes) + added[dag.batch]
        virtual = dag.node_ptr[graphs + 1] + added[graphs]
        moved = _Moved(dag, number, virtual, graphs)
        return replace(
            dag,
            schema=self.schema(dag.schema),
            op_type=moved.fill(dag.op_type, len(dag.schema.types)),
            input_ptr=pointers(moved.fill(dag.input_ptr.diff(), 0)),
            input_index=_follow(dag.input_index, number),
            batch=moved.place(dag.batch, graphs),
            depth=moved.fill(dag.depth, 0),
            output_index=_follow(dag.output_index, number),
            span=moved.fill(dag.span, -1),
            columns={
                **dag.columns,
                "node": {},
                f"type:{VIRTUAL.name}": {
                    "kind": virtual.new_zeros(len(virtual), dtype=torch.uint8)
                },
                f"relation:{self.relation}": self._edge_columns(dag, moved),
            },
            relations={
                name: moved.joined(relation)[0] if name == self.relation else moved.kept(relation)
                for name, relation in dag.relations.items()
            },
        )

    def _edge_columns(self, dag: TypedDAG, moved: _Moved) -> dict[str, Tensor]:
        joined, old = moved.joined(dag.relations[self.relation])
        columns = {}
        for column in dag.schema.relation(self.relation).features:
            values = dag.columns[f"relation:{self.relation}"][column.name]
            made = values.new_full((len(joined.index), *values.shape[1:]), column.size or 0)
            columns[column.name] = made.index_copy_(0, old, values)
        return columns


@dataclass(frozen=True)
class _Moved:
    """Graphs whose nodes have new numbers.

    Args:
        dag: the graphs.
        number: [num_nodes] the new number of each node.
        virtual: [num_virtual] the numbers of the nodes that are added.
        graphs: [num_virtual] their graphs.
    """

    dag: TypedDAG
    number: Tensor
    virtual: Tensor
    graphs: Tensor

    def place(self, values: Tensor, own: Tensor) -> Tensor:
        """[num_nodes + num_virtual, ...] rows of nodes, and those of the nodes that are added."""
        made = values.new_empty(len(self.number) + len(self.virtual), *values.shape[1:])
        return made.index_copy_(0, self.number, values).index_copy_(0, self.virtual, own)

    def fill(self, values: Tensor, own: int) -> Tensor:
        """The same, with one number for the nodes that are added."""
        return self.place(values, values.new_full((len(self.virtual), *values.shape[1:]), own))

    def kept(self, relation: Relation) -> Relation:
        """A relation that the nodes have no part in."""
        return Relation(
            pointers(self.fill(relation.ptr.diff(), 0)), _follow(relation.index, self.number)
        )

    def joined(self, relation: Relation) -> tuple[Relation, Tensor]:
        """The relation with the edges from and to the nodes; where the old edges are now.

        The edge from the node is the last of each other node.
        """
        count, sizes = relation.ptr.diff(), self.dag.node_ptr.diff()[self.graphs]
        ptr = pointers(self.place(count + 1, sizes))
        old = ragged_arange(ptr[:-1][self.number], count)
        index = relation.index.new_empty(int(ptr[-1]))
        index[old] = self.number[relation.index]
        index[ptr[1:][self.number] - 1] = repeat(self.virtual, sizes)
        index[ragged_arange(ptr[:-1][self.virtual], sizes)] = self.number
        return Relation(ptr, index), old


def _follow(index: Tensor, number: Tensor) -> Tensor:
    """The new numbers of nodes; an absent one stays absent."""
    return torch.where(index < 0, index, number[index]) if len(index) else index


def _with_code(edge: EdgeType) -> EdgeType:
    """The edges with one more code in each column of codes."""
    columns = (c if c.size is None else replace(c, size=c.size + 1) for c in edge.features)
    return replace(edge, features=tuple(columns))
