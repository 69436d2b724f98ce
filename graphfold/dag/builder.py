"""GraphBuilder: how an adapter writes graphs, node by node or by whole columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.dag.assemble import GraphLists, assemble
from graphfold.dag.collate import collate
from graphfold.dag.schema import Schema
from graphfold.dag.typed_dag import TypedDAG
from graphfold.errors import GraphError, SchemaError, did_you_mean

NO_SPAN = (-1, -1)


class GraphBuilder:
    """Collects graphs as Python lists and turns all of them into one `TypedDAG`.

    Nodes are numbered from 0 within the graph under construction; an input may name a node that
    comes later. `finish` ends a graph, `discard` forgets the unfinished one.

    Args:
        schema: what the graphs consist of.
        file: the file that the graphs come from, for error messages.
    """

    def __init__(self, schema: Schema, file: str = "") -> None:
        self.schema = schema
        self.file = file
        self._spaces = schema.spaces()
        self._types = {t.name: index for index, t in enumerate(schema.types)}
        self._added: list[TypedDAG] = []
        self._done: list[GraphLists] = []
        self.discard()

    @property
    def num_graphs(self) -> int:
        """The number of finished graphs."""
        return sum(dag.num_graphs for dag in self._added) + len(self._done)

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the unfinished graph."""
        return len(self._graph.op_type)

    def node(
        self,
        type_name: str,
        inputs: Sequence[int | None] = (),
        span: tuple[int, int] = NO_SPAN,
        columns: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> int:
        """Adds one node and returns its number.

        Args:
            type_name: a node type of the schema.
            inputs: the nodes to be computed first, in order; None for an absent slot.
            span: first and last-plus-one character or atom of the source that it covers.
            columns: features and targets, for names that come from a file, as in `finish`.
            **values: its features and its targets by name; an absent one is a missing value.

        Raises:
            SchemaError: if the schema lacks the type or a name.
        """
        rows_of = self._node_columns(type_name)
        values = {**(columns or {}), **values}
        _refuse_unknown("node", values, rows_of)
        graph = self._graph
        graph.op_type.append(self._types[type_name])
        graph.inputs.append(tuple(inputs))  # a copy, which cannot change after `finish` checked it
        graph.spans.append(span)
        for name, rows in rows_of.items():
            rows.append(values.get(name))
        return len(graph.op_type) - 1

    def nodes(
        self,
        type_name: str,
        count: int,
        spans: Sequence[tuple[int, int]] | None = None,
        inputs: Sequence[Sequence[int | None]] | None = None,
        **values: Sequence[Any] | np.ndarray,
    ) -> range:
        """Adds `count` nodes from whole columns; returns their numbers.

        Args:
            type_name: a node type of the schema.
            count: how many nodes.
            spans: as in `node`, for each of them.
            inputs: as in `node`, for each of them; without inputs if not given.
            **values: features and targets by name, one value for each node.

        Raises:
            SchemaError: if the schema lacks the type or a name, or a column has another length.
        """
        columns = self._node_columns(type_name)
        spans = [NO_SPAN] * count if spans is None else spans
        inputs = [()] * count if inputs is None else inputs
        _check_length(type_name, "spans", spans, count)
        _check_length(type_name, "inputs", inputs, count)
        _refuse_unknown("node", values, columns)
        _extend(f"type:{type_name}", columns, count, values)
        graph = self._graph
        first = len(graph.op_type)
        graph.op_type += [self._types[type_name]] * count
        graph.inputs += map(tuple, inputs)
        graph.spans += spans
        return range(first, first + count)

    def inputs(
        self,
        node: int,
        inputs: Sequence[int | None],
        columns: Mapping[str, Sequence[Any]] | None = None,
        **values: Sequence[Any],
    ) -> None:
        """Sets the inputs of a node made before, with the columns of these input edges."""
        values = {**(columns or {}), **values}
        self._graph.inputs[node] = tuple(inputs)
        if values:
            _refuse_unknown("inputs", values, [column.name for column in self._spaces["inputs"]])
            for name, column in values.items():
                _check_length("inputs", name, column, len(inputs))
            self._graph.input_values[node] = {k: _as_list(v) for k, v in values.items()}

    def edges(
        self,
        relation: str,
        source: Sequence[int],
        target: Sequence[int],
        columns: Mapping[str, Sequence[Any]] | None = None,
        **values: Sequence[Any],
    ) -> None:
        """Adds edges source[i] -> target[i] of a relation, with their columns."""
        space = f"relation:{relation}"
        if space not in self._spaces:
            self.schema.relation(relation)
        self._append(space, len(source), {**(columns or {}), **values})
        sources, targets = self._graph.edges.setdefault(relation, ([], []))
        sources.extend(source)
        targets.extend(target)

    def output(self, *nodes: int) -> None:
        """Names the output nodes of the graph, in order; replaces an earlier choice."""
        self._graph.outputs = list(nodes)

    def finish(
        self,
        line: int = 0,
        record: int | None = None,
        columns: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> None:
        """Ends the graph.

        Args:
            line: the 1-based line where its record begins.
            record: the number of the record; by default its position in this builder.
            columns: features and targets of the whole graph, for names that come from a file.
            **values: the same, for names that are known when the code is written.

        Raises:
            GraphError: if it names no output node, or an input, an end of an edge or an output
                that is not a node of the graph.
            SchemaError: if the schema lacks one of the columns.
        """
        graph = self._graph
        if not graph.outputs:
            raise GraphError("a graph needs at least one output node. Call builder.output(root).")
        _refuse_dangling(graph)
        values = {**(columns or {}), **values}
        self._append("graph", 1, {name: [value] for name, value in values.items()})
        graph.origin = (line, self.num_graphs if record is None else record)
        self._done.append(graph)
        self.discard()

    def add(self, dag: TypedDAG) -> None:
        """Adds finished graphs of the same schema, which are numbered as records from here on."""
        origin = dag.origin.clone()
        origin[:, 2] = torch.arange(self.num_graphs, self.num_graphs + dag.num_graphs, device="cpu")
        if self._done:
            self._added.append(assemble(self.schema, self._done, self.file))
            self._done = []
        self._added.append(replace(dag, origin=origin))

    def discard(self) -> None:
        """Forgets the unfinished graph."""
        self._graph = GraphLists()
        self._by_type: dict[str, dict[str, list[Any]]] = {}

    @outside_modes
    def build(self) -> TypedDAG:
        """All finished graphs in one `TypedDAG`.

        Raises:
            GraphError: if the inputs have a cycle.
            SchemaError: if a value does not fit its column.
        """
        parts = [*self._added]
        if self._done or not parts:
            parts.append(assemble(self.schema, self._done, self.file))
        return parts[0] if len(parts) == 1 else collate(parts)

    def _append(self, space: str, count: int, values: Mapping[str, Any]) -> None:
        """Adds `count` rows to a space."""
        columns = self._columns(space)
        _refuse_unknown(space, values, columns)
        _extend(space, columns, count, values)

    def _columns(self, space: str) -> dict[str, list[Any]]:
        """The columns of a space in the unfinished graph, by name."""
        columns = self._graph.columns
        if space not in columns:
            columns[space] = {column.name: [] for column in self._spaces[space]}
        return columns[space]

    def _node_columns(self, type_name: str) -> dict[str, list[Any]]:
        """The targets and features of a type's nodes; looked up once per graph."""
        if type_name not in self._by_type:
            if type_name not in self._types:
                raise SchemaError(_unknown("node type", type_name, self._types))
            self._by_type[type_name] = self._columns("node") | self._columns(f"type:{type_name}")
        return self._by_type[type_name]


def _refuse_dangling(graph: GraphLists) -> None:
    count = len(graph.op_type)
    ends = chain.from_iterable(chain(*pair) for pair in graph.edges.values())
    for node in chain(chain.from_iterable(graph.inputs), graph.outputs, ends):
        if node is not None and not 0 <= node < count:
            raise GraphError(
                f"node {node} is named, but the graph has the nodes 0 .. {count - 1}. "
                "Name one of its own nodes.",
                node=node,
            )


def _refuse_unknown(what: str, values: Mapping[str, Any], columns: Collection[str]) -> None:
    for name in values:
        if name not in columns:
            raise SchemaError(_unknown(f"column of {what}", name, columns))


def _extend(
    space: str, columns: Mapping[str, list[Any]], count: int, values: Mapping[str, Any]
) -> None:
    """Adds `count` rows to columns; None for a column without values."""
    lists = {name: _as_list(rows) for name, rows in values.items() if rows is not None}
    for name, rows in lists.items():
        _check_length(space, name, rows, count)
    for name, column in columns.items():
        column += lists[name] if name in lists else [None] * count


def _check_length(space: str, name: str, rows: Sequence[Any], count: int) -> None:
    if len(rows) != count:
        raise SchemaError(
            f"column '{name}' has {len(rows)} values for {count} rows of {space}. "
            "Give one value for each row."
        )


def _as_list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, (np.ndarray, Tensor)) else list(values)


def _unknown(kind: str, name: str, names: Collection[str]) -> str:
    hint = did_you_mean(name, names)
    return f"schema has no {kind} '{name}'.{hint} It has: {', '.join(names) or 'none'}."
