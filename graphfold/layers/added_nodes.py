"""AddedNodes: graphs that get further nodes of a new type, after their own."""

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
    """The numbers of nodes once some are added at the end of each graph.

    Args:
        dag: the graphs.
        number: [num_nodes] the new number of each node.
        added: [num_added] the numbers of the nodes that are added.
    """

    dag: TypedDAG
    number: Tensor
    added: Tensor

    @staticmethod
    def at_the_end(dag: TypedDAG, count: Tensor) -> AddedNodes:
        """`count` [num_graphs] nodes are added to the graphs."""
        before = pointers(count)[:-1]
        number = torch.arange(dag.num_nodes, device="cpu") + before[dag.batch]
        return AddedNodes(dag, number, ragged_arange(dag.node_ptr[1:] + before, count))

    def place(self, values: Tensor, own: Tensor) -> Tensor:
        """[num_nodes + num_added, ...] rows of nodes, and those of the nodes that are added."""
        made = values.new_empty(len(self.number) + len(self.added), *values.shape[1:])
        return made.index_copy_(0, self.number, values).index_copy_(0, self.added, own)

    def fill(self, values: Tensor, own: int) -> Tensor:
        """The same, with one number for the nodes that are added."""
        return self.place(values, values.new_full((len(self.added), *values.shape[1:]), own))

    def follow(self, index: Tensor) -> Tensor:
        """The new numbers of nodes; an absent one stays absent."""
        return torch.where(index < 0, index, self.number[index]) if len(index) else index

    def kept(self, relation: Relation) -> Relation:
        """A relation that the added nodes have no part in."""
        return Relation(pointers(self.fill(relation.ptr.diff(), 0)), self.follow(relation.index))

    def make(
        self,
        schema: Schema,
        graph: Tensor,
        features: Mapping[str, Tensor],
        relations: Mapping[str, Relation],
        edge_columns: Mapping[str, Mapping[str, Tensor]],
    ) -> TypedDAG:
        """The graphs.

        Args:
            schema: theirs; its last type is that of the added nodes.
            graph: [num_added] the graph of each added node.
            features: the columns of the added nodes.
            relations: those that are others now.
            edge_columns: relation -> the columns of these.
        """
        dag = self.dag
        kept = {name: self.kept(relation) for name, relation in dag.relations.items()}
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
            relations={**kept, **relations},
        )


def with_type(schema: Schema, node_type: NodeType, edge: EdgeType) -> Schema:
    """A schema with one more type and a relation, which may take the place of one of its name.

    Targets of nodes are those of the graphs of the data, so it has none.

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
