"""Graphs as Python objects: how blocks see the examples of a data module.

Targets are not among what a node knows: a model must do without them when it predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np

from graphfold.blocks.block_errors import BlockKeyError, BlockValueError
from graphfold.dag import Column, TypedDAG

#: The name under which `Node.edges` gives the edges from a node's inputs.
INPUTS = "inputs"

_Ends = tuple[np.ndarray, np.ndarray]  # where the edges into each node begin, and their sources


class Node:
    """A node: `node["form"]` is its feature of that name, a code, a number or an array of numbers.

    Args:
        type: the name of its type.
        number: its position in the graph.
        features: name -> value.

    Attributes:
        inputs: the nodes that it is made of, in order; None for an absent one.
    """

    __slots__ = ("_edges", "_features", "inputs", "number", "type")

    def __init__(self, type: str, number: int, features: Mapping[str, Any]) -> None:
        self.type = type
        self.number = number
        self.inputs: list[Node | None] = []
        self._features = features
        self._edges: dict[str, list[Edge]] = {}

    def __getitem__(self, name: str) -> Any:
        return self._features[name]

    def __repr__(self) -> str:
        return f"<node {self.number}, a '{self.type}' with {dict(self._features)}>"

    def edges(self, name: str) -> list[Edge]:
        """The edges of a relation that end here, or, as "inputs", those from its inputs.

        Raises:
            BlockKeyError: if there is no such relation, or inputs have no features.
        """
        if name not in self._edges:
            known = ", ".join(map(repr, self._edges)) or "none"
            raise BlockKeyError(f"{self} has no edges {name!r}. Its graph has: {known}.", key=name)
        return self._edges[name]


class Edge:
    """An edge: `edge["kind"]` is its feature of that name.

    Args:
        node: where it comes from; None for an absent input.
        features: name -> value.
    """

    __slots__ = ("_features", "node")

    def __init__(self, node: Node | None, features: Mapping[str, Any]) -> None:
        self.node = node
        self._features = features

    def __getitem__(self, name: str) -> Any:
        return self._features[name]

    def __repr__(self) -> str:
        return f"<edge from {self.node!r} with {dict(self._features)}>"


class Graph:
    """A graph.

    Args:
        nodes: its nodes.
        outputs: its output nodes.
    """

    __slots__ = ("nodes", "outputs")

    def __init__(self, nodes: list[Node], outputs: list[Node]) -> None:
        self.nodes = nodes
        self.outputs = outputs

    @property
    def root(self) -> Node:
        """The only output node.

        Raises:
            BlockValueError: if there are none, or several.
        """
        if len(self.outputs) != 1:
            raise BlockValueError(
                f"a graph has {len(self.outputs)} output nodes, so it has no root. Use "
                "graph.outputs."
            )
        return self.outputs[0]

    def __repr__(self) -> str:
        return f"<graph of {len(self.nodes)} nodes>"


class Graphs(Sequence[Graph]):
    """The graphs of a `TypedDAG`, each made when it is asked for.

    Args:
        dag: the graphs, encoded.
    """

    def __init__(self, dag: TypedDAG) -> None:
        self._dag = dag

    def __len__(self) -> int:
        return self._dag.num_graphs

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> list[Graph]: ...
    def __getitem__(self, index: int | slice) -> Graph | list[Graph]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"there is no graph {index} among {len(self)}.")
        dag = self._dag
        first, last = dag.node_ptr[index : index + 2].tolist()
        features = [self._rows(f"type:{t.name}", t.features, index) for t in dag.schema.types]
        names = [node_type.name for node_type in dag.schema.types]
        nodes = [
            Node(names[op_type], number, next(features[op_type]))
            for number, op_type in enumerate(self._op_type[first:last].tolist())
        ]
        for node, inputs in zip(nodes, _runs(self._inputs, first, last), strict=True):
            node.inputs = [None if source < 0 else nodes[source - first] for source in inputs]
        self._add_edges(nodes, first, last, index)
        begin, end = dag.output_ptr[index : index + 2].tolist()
        return Graph(nodes, [nodes[n - first] for n in dag.output_index[begin:end].tolist()])

    def _add_edges(self, nodes: list[Node], first: int, last: int, graph: int) -> None:
        schema = self._dag.schema
        kinds = [(f"relation:{r.name}", r, self._relation(r.name)) for r in schema.relations]
        if schema.inputs.features:  # else `Node.inputs` says it all
            kinds.append((INPUTS, schema.inputs, self._inputs))
        for space, kind, ends in kinds:
            features = self._rows(space, kind.features, graph)
            for node, sources in zip(nodes, _runs(ends, first, last), strict=True):
                node._edges[kind.name] = [
                    Edge(None if source < 0 else nodes[source - first], next(features))
                    for source in sources
                ]

    def _rows(self, space: str, columns: Sequence[Column], graph: int) -> Iterator[dict[str, Any]]:
        """The features of the rows that a graph has in a space."""
        begin, end = self._row_ptr(space)[graph : graph + 2]
        names = [column.name for column in columns]
        values = [self._column(space, column, begin, end) for column in columns]
        if not values:
            return iter([{}] * (end - begin))
        return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))

    def _column(self, space: str, column: Column, begin: int, end: int) -> Sequence[Any]:
        rows = self._dag.columns[space][column.name][begin:end].numpy()
        return list(rows) if column.shape else rows.tolist()

    def _row_ptr(self, space: str) -> Any:
        if space not in self._pointers:
            self._pointers[space] = self._dag.row_ptr(space).tolist()
        return self._pointers[space]

    def _relation(self, name: str) -> _Ends:
        relation = self._dag.relations[name]
        return relation.ptr.numpy(), relation.index.numpy()

    @cached_property
    def _pointers(self) -> dict[str, list[int]]:
        return {}

    @cached_property
    def _op_type(self) -> np.ndarray:
        return self._dag.op_type.numpy()

    @cached_property
    def _inputs(self) -> _Ends:
        return self._dag.input_ptr.numpy(), self._dag.input_index.numpy()


def _runs(ends: _Ends, first: int, last: int) -> Iterator[list[int]]:
    """The sources of the edges into each of some nodes."""
    ptr, index = ends
    bounds = ptr[first : last + 1].tolist()
    sources = index[bounds[0] : bounds[-1]].tolist()
    for begin, end in pairwise(bounds):
        yield sources[begin - bounds[0] : end - bounds[0]]
