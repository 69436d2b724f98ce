"""NodePairs: one further node for every two nodes of a graph that are near each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphfold.dag import Column, EdgeType, NodeType, Schema, TypedDAG
from graphfold.dag.typed_dag import Relation, pointers, repeat
from graphfold.errors import ConfigError
from graphfold.layers.added_nodes import AddedNodes, with_type

#: The type of the pairs, and the relation in which pairs and their nodes read each other.
PAIR, WEAVE = "pair", EdgeType("weave")


@dataclass(frozen=True)
class NodePairs:
    """Adds a node for every two nodes that a path of few edges joins.

    The pairs of Kearnes et al. (2016), https://arxiv.org/abs/1603.00856, section 2: their features
    are the length of the shortest path, and the features of the edge between the nodes (without an
    edge, one more code in each column). Differences from the paper: no pair of a node with itself,
    no feature for atoms in one ring.

    Args:
        relation: the edges of the paths, in both directions.
        distance: the largest number of edges of a path.

    Raises:
        ConfigError: if `distance` is not positive.
    """

    relation: str
    distance: int = 2

    def __post_init__(self) -> None:
        if self.distance < 1:
            raise ConfigError(
                f"pairs have distance={self.distance}, but a path has at least one edge. Set it to "
                "1 or more."
            )

    def schema(self, schema: Schema) -> Schema:
        """The schema of the graphs with pairs, without targets of nodes.

        Raises:
            ConfigError: if there is a type of this name.
            SchemaError: if there is no such relation.
        """
        columns = [Column("distance", "uint8", size=self.distance)]
        for column in schema.relation(self.relation).features:
            size = None if column.size is None else column.size + 1
            columns.append(replace(column, name=f"edge_{column.name}", size=size))
        return with_type(schema, NodeType(PAIR, 0, tuple(columns)), WEAVE)

    def lower(self, dag: TypedDAG, num_workers: int = 0) -> TypedDAG:
        """The graphs with pairs, which are the last nodes of each.

        Args:
            dag: the graphs, on the CPU.
            num_workers: not used, the work is fast.
        """
        one, other, length = _paths(dag, self.relation, self.distance)
        graph = dag.batch[one]
        nodes = AddedNodes.at_the_end(dag, torch.bincount(graph, minlength=dag.num_graphs))
        ends = torch.cat([nodes.number[one], nodes.number[other]])
        pairs = torch.cat([nodes.added, nodes.added])
        count = dag.num_nodes + len(nodes.added)
        weave = _relation(torch.cat([pairs, ends]), torch.cat([ends, pairs]), count)
        features = {"distance": (length - 1).to(torch.uint8), **self._edges(dag, one, other)}
        return nodes.make(
            self.schema(dag.schema), graph, features, {WEAVE.name: weave}, {WEAVE.name: {}}
        )

    def _edges(self, dag: TypedDAG, one: Tensor, other: Tensor) -> dict[str, Tensor]:
        """The columns of the edge from one node of each pair to the other, by name."""
        relation, columns = dag.relations[self.relation], {}
        target = repeat(torch.arange(dag.num_nodes, device="cpu"), relation.ptr.diff())
        keys, order = torch.sort(relation.index * dag.num_nodes + target)
        pair = one * dag.num_nodes + other
        place = torch.searchsorted(keys, pair).clamp(max=max(len(keys) - 1, 0))
        has_edge = keys[place] == pair
        for column in dag.schema.relation(self.relation).features:
            values = dag.columns[f"relation:{self.relation}"][column.name]
            of_pair = values.new_full((len(one), *values.shape[1:]), column.size or 0)
            of_pair[has_edge] = values[order[place[has_edge]]]
            columns[f"edge_{column.name}"] = of_pair
        return columns


def _paths(dag: TypedDAG, relation: str, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """(one, other, length) of every two nodes on a path of at most `most` edges, one < other."""
    ptr, index, n = dag.relations[relation].ptr, dag.relations[relation].index, dag.num_nodes
    key = torch.arange(n, device="cpu") * (n + 1)  # of a node with itself: start * n + end
    seen, lengths = key, torch.zeros_like(key)
    for length in range(1, most + 1):
        start, end = key // max(n, 1), key % max(n, 1)
        count = ptr.diff()[end]
        place = torch.arange(int(count.sum()), device="cpu") + repeat(
            ptr[end] - pointers(count)[:-1], count
        )
        reached = torch.unique(repeat(start, count) * n + index[place])
        key = reached[~torch.isin(reached, seen)]
        seen = torch.cat([seen, key])
        lengths = torch.cat([lengths, torch.full_like(key, length)])
    one, other = seen // max(n, 1), seen % max(n, 1)
    keep = torch.nonzero(one < other).view(-1)
    keep = keep[torch.argsort(seen[keep])]  # in node order, so graph by graph
    return one[keep], other[keep], lengths[keep]


def _relation(source: Tensor, target: Tensor, num_nodes: int) -> Relation:
    order = torch.argsort(target, stable=True)
    return Relation(pointers(torch.bincount(target, minlength=num_nodes)), source[order])
