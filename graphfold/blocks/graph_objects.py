"""Graphs as Python objects: the examples of a data module, as blocks see them.

A node does not hold its targets: a model must do without them when it predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, overload

import numpy as np

from graphfold.blocks.block_errors import BlockKeyError, BlockValueError
from graphfold.dag import Column, TypedDAG

#: The name under which `Node.edges` returns the edges from a node's inputs.
INPUTS = "inputs"

_Ends = tuple[np.ndarray, np.ndarray]  # where the edges into each node begin, and their sources


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A node: `node["form"]` is its feature of that name, a code, a number or an array of numbers.

    Args:
        type: the name of its type.
        number: its position in the graph.
        features: name -> value.

    Attributes:
        inputs: its input nodes, in order; None for an absent one.
    """

    type: str
    number: int
    features: Mapping[str, Any]
    inputs: list[Node | None] = field(default_factory=list)
    _edges: dict[str, list[Edge]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.features[name]

    def __repr__(self) -> str:
        return f"<node {self.number}, a '{self.type}' with {dict(self.features)}>"

    def edges(self, name: str) -> list[Edge]:
        """The edges of a relation that end here; for "inputs", the edges from the inputs.

        Raises:
            BlockKeyError: if there is no such relation, or inputs have no features.
        """
        if name not in self._edges:
            names = ", ".join(map(repr, self._edges)) or "none"
            raise BlockKeyError(f"{self} has no edges {name!r}. Its graph has: {names}.", key=name)
        return self._edges[name]


@dataclass(slots=True, eq=False, repr=False)
class Edge:
    """An edge: `edge["kind"]` is its feature of that name.

    Args:
        node: where it comes from; None for an absent input.
        features: name -> value.
    """

    node: Node | None
    features: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.features[name]

    def __repr__(self) -> str:
        return f"<edge from {self.node!r} with {dict(self.features)}>"


@dataclass(slots=True, eq=False, repr=False)
class Graph:
    """A graph.

    Args:
        nodes: its nodes.
        outputs: its output nodes.
    """

    nodes: list[Node]
    outputs: list[Node]

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
    """The graphs of a `TypedDAG`, each made when it is read.

    Args:
        dag: the graphs, encoded.
    """

    def __init__(self, dag: TypedDAG) -> None:
        self._dag = dag
        self._op_type = dag.op_type.numpy()
        self._inputs: _Ends = dag.input_ptr.numpy(), dag.input_index.numpy()
        self._row_ptr: dict[str, list[int]] = {}  # space -> where the rows of each graph begin

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
        schema, relations = self._dag.schema, self._dag.relations
        kinds = [
            (
                f"relation:{r.name}",
                r,
                (relations[r.name].ptr.numpy(), relations[r.name].index.numpy()),
            )
            for r in schema.relations
        ]
        if schema.inputs.features:  # without them `Node.inputs` is enough
            kinds.append((INPUTS, schema.inputs, self._inputs))
        for space, kind, ends in kinds:
            features = self._rows(space, kind.features, graph)
            for node, sources in zip(nodes, _runs(ends, first, last), strict=True):
                node._edges[kind.name] = [
                    Edge(None if source < 0 else nodes[source - first], next(features))
                    for source in sources
                ]

    def _rows(self, space: str, columns: Sequence[Column], graph: int) -> Iterator[dict[str, Any]]:
        """The features of the rows of a graph in a space."""
        if space not in self._row_ptr:
            self._row_ptr[space] = self._dag.row_ptr(space).tolist()
        begin, end = self._row_ptr[space][graph : graph + 2]
        if not columns:
            return iter([{}] * (end - begin))
        names = [column.name for column in columns]
        arrays = [self._dag.columns[space][name][begin:end].numpy() for name in names]
        values = [
            list(rows) if column.shape else rows.tolist()
            for column, rows in zip(columns, arrays, strict=True)
        ]
        return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def _runs(ends: _Ends, first: int, last: int) -> Iterator[list[int]]:
    """The sources of the edges into each of some nodes."""
    ptr, index = ends
    bounds = ptr[first : last + 1].tolist()
    sources = index[bounds[0] : bounds[-1]].tolist()
    for begin, end in pairwise(bounds):
        yield sources[begin - bounds[0] : end - bounds[0]]
