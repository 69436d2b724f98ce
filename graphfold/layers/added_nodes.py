"""AddedNodes: graphs with further nodes of a new type, at the end of each graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphfold.dag import EdgeType, NodeType, Schema, TypedDAG
from graphfold.dag.typed_dag import Relation, pointers, ragged_arange
from graphfold.errors import ConfigError


@dataclass(frozen=True)
class AddedNodes:
    """The numbers of nodes after some are added at the end of each graph.

    Args:
        dag: the graphs.
        number: [num_nodes] the new number of each old node.
        added: [num_added] the numbers of the added nodes.
    """

    dag: TypedDAG
    number: Tensor
    added: Tensor

    @staticmethod
    def at_the_end(dag: TypedDAG, count: Tensor) -> AddedNodes:
        """Adds `count` [num_graphs] nodes to the graphs."""
        before = pointers(count)[:-1]
        number = torch.arange(dag.num_nodes, device="cpu") + before[dag.batch]
        return AddedNodes(dag, number, ragged_arange(dag.node_ptr[1:] + before, count))

    def place(self, old: Tensor, new: Tensor) -> Tensor:
        """[num_nodes + num_added, ...] the rows of the old and of the added nodes, in order."""
        rows = old.new_empty(len(self.number) + len(self.added), *old.shape[1:])
        return rows.index_copy_(0, self.number, old).index_copy_(0, self.added, new)

    def fill(self, old: Tensor, number: int) -> Tensor:
        """`place` with one number for all added nodes."""
        return self.place(old, old.new_full((len(self.added), *old.shape[1:]), number))

    def follow(self, index: Tensor) -> Tensor:
        """The new numbers of nodes; an absent node (-1) stays absent."""
        return torch.where(index < 0, index, self.number[index]) if len(index) else index

    def renumber(self, relation: Relation) -> Relation:
        """A relation with the new numbers, without edges of the added nodes."""
        return Relation(pointers(self.fill(relation.ptr.diff(), 0)), self.follow(relation.index))

    def make(
        self,
        schema: Schema,
        graph: Tensor,
        features: Mapping[str, Tensor],
        relations: Mapping[str, Relation],
        edge_columns: Mapping[str, Mapping[str, Tensor]],
    ) -> TypedDAG:
        """The graphs with the added nodes.

        Args:
            schema: the new schema; the added nodes have its last type.
            graph: [num_added] the graph of each added node.
            features: the columns of the added nodes.
            relations: the relations with edges of the added nodes.
            edge_columns: relation -> the columns of its edges.
        """
        dag = self.dag
        old = {name: self.renumber(relation) for name, relation in dag.relations.items()}
        return replace(
            dag,
            schema=schema,
            op_type=self.fill(dag.op_type, len(schema.types) - 1),
            input_ptr=pointers(self.fill(dag.input_ptr.diff(), 0)),
            input_index=self.follow(dag.input_index),
            batch=self.place(dag.batch, graph),
            depth=self.fill(dag.depth, 0),
            output_index=self.follow(dag.output_index),
            span=self.fill(dag.span, -1),
            columns={
                **dag.columns,
                "node": {},
                f"type:{schema.types[-1].name}": features,
                **{f"relation:{name}": columns for name, columns in edge_columns.items()},
            },
            relations={**old, **relations},
        )


def with_type(schema: Schema, node_type: NodeType, edge: EdgeType) -> Schema:
    """A schema with one more type and a relation, which replaces one of the same name.

    It has no targets of nodes: these belong to the graphs of the data.

    Raises:
        ConfigError: if there is a type of this name.
    """
    if any(other.name == node_type.name for other in schema.types):
        raise ConfigError(
            f"the data has a type '{node_type.name}' already. Rename it, or take another model."
        )
    relations = {**{other.name: other for other in schema.relations}, edge.name: edge}
    return replace(
        schema,
        types=(*schema.types, node_type),
        relations=tuple(relations.values()),
        node_targets=(),
    )
