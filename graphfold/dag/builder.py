"""GraphBuilder: how an adapter writes graphs, node by node or by whole columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.dag.depth import compute_depth
from graphfold.dag.schema import MISSING, Column, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG, pointers
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
        self._done: list[_Graph] = []
        self._graph = _Graph()

    @property
    def num_graphs(self) -> int:
        """How many graphs are finished."""
        return len(self._done)

    @property
    def num_nodes(self) -> int:
        """How many nodes the unfinished graph has."""
        return len(self._graph.op_type)

    def node(
        self,
        type_name: str,
        inputs: Sequence[int | None] = (),
        span: tuple[int, int] = NO_SPAN,
        **values: Any,
    ) -> int:
        """Adds one node and returns its number.

        Args:
            type_name: a node type of the schema.
            inputs: the nodes to be computed first, in order; None for an absent slot.
            span: first and last-plus-one character or atom of the source that it covers.
            **values: its features and its targets by name; what is not given is missing.

        Raises:
            SchemaError: if the schema lacks the type or a name.
        """
        rows = {name: [value] for name, value in values.items()}
        return self.nodes(type_name, 1, [span], [inputs], **rows)[0]

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
        if type_name not in self._types:
            raise SchemaError(_unknown("node type", type_name, self._types))
        graph = self._graph
        numbers = range(self.num_nodes, self.num_nodes + count)
        graph.op_type += [self._types[type_name]] * count
        for name, rows in (("spans", spans), ("inputs", inputs)):
            if rows is not None:
                _check_length(type_name, name, rows, count)
        graph.inputs += [()] * count if inputs is None else inputs
        graph.spans += [NO_SPAN] * count if spans is None else spans
        space = f"type:{type_name}"
        features = [column.name for column in self._spaces[space]]
        self._append("node", count, {k: v for k, v in values.items() if k not in features})
        self._append(space, count, {k: v for k, v in values.items() if k in features})
        return numbers

    def inputs(self, node: int, inputs: Sequence[int | None], **values: Sequence[Any]) -> None:
        """Sets the inputs of a node made before, with the columns of these input edges."""
        known = [column.name for column in self._spaces["inputs"]]
        for name, column in values.items():
            if name not in known:
                raise SchemaError(_unknown("column of inputs", name, known))
            _check_length("inputs", name, column, len(inputs))
        self._graph.inputs[node] = inputs
        if values:
            self._graph.input_values[node] = values

    def edges(
        self, relation: str, source: Sequence[int], target: Sequence[int], **values: Sequence[Any]
    ) -> None:
        """Adds edges source[i] -> target[i] of a relation, with their columns."""
        space = f"relation:{relation}"
        if space not in self._spaces:
            self.schema.relation(relation)
        sources, targets = self._graph.edges.setdefault(relation, ([], []))
        sources.extend(source)
        targets.extend(target)
        self._append(space, len(source), values)

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
        self._graph = _Graph()

    def discard(self) -> None:
        """Forgets the unfinished graph."""
        self._graph = _Graph()

    def build(self) -> TypedDAG:
        """All finished graphs in one `TypedDAG`.

        Raises:
            GraphError: if the inputs have a cycle.
            SchemaError: if a value does not fit its column.
        """
        graphs = self._done
        counts = torch.tensor([len(g.op_type) for g in graphs], dtype=torch.int64)
        offsets = pointers(counts).tolist()
        input_ptr, input_index = self._inputs(offsets)
        columns, dictionaries = self._columns()
        relations = {}
        for edge_type in self.schema.relations:
            relation, order = self._relation(edge_type.name, offsets)
            space = f"relation:{edge_type.name}"
            columns[space] = {name: column[order] for name, column in columns[space].items()}
            relations[edge_type.name] = relation
        return TypedDAG(
            schema=self.schema,
            op_type=_long(chain.from_iterable(g.op_type for g in graphs)),
            input_ptr=input_ptr,
            input_index=input_index,
            batch=torch.repeat_interleave(torch.arange(len(graphs)), counts),
            num_graphs=len(graphs),
            depth=compute_depth(input_ptr, input_index),
            output_ptr=pointers(_long(len(g.outputs) for g in graphs)),
            output_index=_long(
                node + offset
                for g, offset in zip(graphs, offsets, strict=False)
                for node in g.outputs
            ),
            span=_long(chain.from_iterable(chain.from_iterable(g.spans for g in graphs))).view(
                -1, 2
            ),
            origin=_long(v for g in graphs for v in (0, *g.origin)).view(-1, 3),
            columns=columns,
            relations=relations,
            dictionaries=dictionaries,
            files=(self.file,),
        )

    def _append(self, space: str, count: int, values: Mapping[str, Any]) -> None:
        """Extends every column of a space by `count` rows."""
        columns = self._graph.columns.setdefault(space, {})
        for column in self._spaces[space]:
            given = values.get(column.name)
            rows = [None] * count if given is None else _as_list(given)
            _check_length(space, column.name, rows, count)
            columns.setdefault(column.name, []).extend(rows)
        known = [column.name for column in self._spaces[space]]
        for name in values:
            if name not in known:
                raise SchemaError(_unknown(f"column of {space}", name, known))

    def _inputs(self, offsets: list[int]) -> tuple[Tensor, Tensor]:
        ptr = [0, *accumulate(len(inputs) for g in self._done for inputs in g.inputs)]
        index = [
            -1 if node is None else node + offset
            for g, offset in zip(self._done, offsets, strict=False)
            for inputs in g.inputs
            for node in inputs
        ]
        return _long(ptr), _long(index)

    def _relation(self, name: str, offsets: list[int]) -> tuple[Relation, Tensor]:
        """The edges sorted by their target, and the order that sorts their columns."""
        empty: tuple[list[int], list[int]] = ([], [])
        pairs = [g.edges.get(name, empty) for g in self._done]
        moved = list(zip(pairs, offsets, strict=False))
        source = _long(node + offset for (sources, _), offset in moved for node in sources)
        target = _long(node + offset for (_, targets), offset in moved for node in targets)
        order = torch.argsort(target, stable=True)
        ptr = pointers(torch.bincount(target, minlength=offsets[-1]))
        return Relation(ptr, source[order]), order

    def _columns(
        self,
    ) -> tuple[dict[str, dict[str, Tensor]], dict[tuple[str, str], tuple[str, ...]]]:
        columns: dict[str, dict[str, Tensor]] = {}
        dictionaries = {}
        for space, specs in self._spaces.items():
            columns[space] = {}
            for spec in specs:
                rows = self._rows(space, spec)
                if spec.dtype == "string":
                    rows, dictionaries[space, spec.name] = _encode(rows)
                columns[space][spec.name] = _to_tensor(space, spec, rows)
        return columns, dictionaries

    def _rows(self, space: str, spec: Column) -> list[Any]:
        if space != "inputs":
            parts = (g.columns.get(space, {}).get(spec.name, ()) for g in self._done)
            return list(chain.from_iterable(parts))
        rows: list[Any] = []
        for graph in self._done:
            for node, inputs in enumerate(graph.inputs):
                values = graph.input_values.get(node, {}).get(spec.name)
                rows += [None] * len(inputs) if values is None else _as_list(values)
        return rows


class _Graph:
    """The lists of one graph; node numbers are its own."""

    def __init__(self) -> None:
        self.op_type: list[int] = []
        self.inputs: list[Sequence[int | None]] = []
        self.input_values: dict[int, Mapping[str, Sequence[Any]]] = {}
        self.spans: list[tuple[int, int]] = []
        self.edges: dict[str, tuple[list[int], list[int]]] = {}
        self.columns: dict[str, dict[str, list[Any]]] = {}
        self.outputs: list[int] = []
        self.origin = (0, 0)


def _refuse_dangling(graph: _Graph) -> None:
    named = chain(chain.from_iterable(graph.inputs), graph.outputs)
    ends = chain.from_iterable(chain(*pair) for pair in graph.edges.values())
    count = len(graph.op_type)
    for node in chain((n for n in named if n is not None), ends):
        if not 0 <= node < count:
            raise GraphError(
                f"node {node} is named, but the graph has the nodes 0 .. {count - 1}. "
                "Name one of its own nodes.",
                node=node,
            )


def _check_length(space: str, name: str, rows: Sequence[Any], count: int) -> None:
    if len(rows) != count:
        raise SchemaError(
            f"column '{name}' has {len(rows)} values for {count} rows of {space}. "
            "Give one value for each row."
        )


def _encode(words: list[str | None]) -> tuple[list[int], tuple[str, ...]]:
    """Codes in order of first occurrence, and the strings they stand for."""
    code: dict[str, int] = {}
    codes = [MISSING if word is None else code.setdefault(word, len(code)) for word in words]
    return codes, tuple(code)


def _to_tensor(space: str, column: Column, rows: list[Any]) -> Tensor:
    if column.shape:
        absent = np.full(column.shape, column.missing)
        rows = [absent if row is None else row for row in rows]
    else:
        rows = [column.missing if row is None else row for row in rows]
    try:
        array = np.asarray(rows) if rows else np.empty(0)
        return torch.as_tensor(array, dtype=column.torch_dtype).reshape(-1, *column.shape)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise SchemaError(
            f"column '{column.name}' of {space} cannot be {column.dtype}{list(column.shape)}: "
            f"{error}. Give numbers of that shape."
        ) from error


def _as_list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, (np.ndarray, Tensor)) else list(values)


def _long(values: Any) -> Tensor:
    return torch.from_numpy(np.fromiter(values, dtype=np.int64))


def _unknown(kind: str, name: str, known: Any) -> str:
    hint = did_you_mean(name, known)
    return f"schema has no {kind} '{name}'.{hint} It has: {', '.join(known) or 'none'}."
