"""Assembly: from the lists of single graphs to the tensors of one `TypedDAG`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphfold.dag.depth import compute_depth
from graphfold.dag.schema import MISSING, Column, Schema
from graphfold.dag.typed_dag import Relation, TypedDAG, pointers
from graphfold.errors import SchemaError

Columns: TypeAlias = dict[str, dict[str, Tensor]]
Dictionaries: TypeAlias = dict[tuple[str, str], tuple[str, ...]]


class GraphLists:
    """One graph as lists; node numbers are its own.

    Attributes:
        op_type: the type of each node.
        inputs: the inputs of each node; None for an absent slot.
        input_values: node -> the columns of its input edges, for nodes that have some.
        spans: what each node covers of the source.
        edges: relation -> sources and targets.
        columns: space -> column -> values, for every space but the inputs.
        outputs: the output nodes.
        origin: line and record.
    """

    def __init__(self) -> None:
        self.op_type: list[int] = []
        self.inputs: list[Sequence[int | None]] = []
        self.input_values: dict[int, Mapping[str, list[Any]]] = {}
        self.spans: list[tuple[int, int]] = []
        self.edges: dict[str, tuple[list[int], list[int]]] = {}
        self.columns: dict[str, dict[str, list[Any]]] = {}
        self.outputs: list[int] = []
        self.origin = (0, 0)


def assemble(schema: Schema, graphs: Sequence[GraphLists], file: str) -> TypedDAG:
    """All graphs in one `TypedDAG`.

    Args:
        schema: of the graphs.
        graphs: the graphs; all numbers are nodes of the same graph.
        file: the file that they come from.

    Raises:
        GraphError: if the inputs have a cycle.
        SchemaError: if a value does not fit its column.
    """
    counts = [len(g.op_type) for g in graphs]
    offsets = [0, *accumulate(counts)]
    input_ptr, input_index = _inputs(graphs, offsets)
    columns, dictionaries = _columns(schema, graphs)
    relations = {}
    for edge_type in schema.relations:
        relation, order = _relation(edge_type.name, graphs, offsets)
        space = f"relation:{edge_type.name}"
        columns[space] = {name: column[order] for name, column in columns[space].items()}
        relations[edge_type.name] = relation
    spans = chain.from_iterable(g.spans for g in graphs)
    return TypedDAG(
        schema=schema,
        op_type=_long(chain.from_iterable(g.op_type for g in graphs)),
        input_ptr=input_ptr,
        input_index=input_index,
        batch=torch.from_numpy(np.arange(len(graphs)).repeat(counts)),
        num_graphs=len(graphs),
        depth=compute_depth(input_ptr, input_index),
        output_ptr=_long([0, *accumulate(len(g.outputs) for g in graphs)]),
        output_index=_long(
            node + offset for g, offset in zip(graphs, offsets, strict=False) for node in g.outputs
        ),
        span=_long(chain.from_iterable(spans)).view(-1, 2),
        origin=_long(v for g in graphs for v in (0, *g.origin)).view(-1, 3),
        columns=columns,
        relations=relations,
        dictionaries=dictionaries,
        files=(file,),
    )


def _inputs(graphs: Sequence[GraphLists], offsets: list[int]) -> tuple[Tensor, Tensor]:
    ptr = [0, *accumulate(len(inputs) for g in graphs for inputs in g.inputs)]
    index = [
        -1 if node is None else node + offset
        for g, offset in zip(graphs, offsets, strict=False)
        for inputs in g.inputs
        for node in inputs
    ]
    return _long(ptr), _long(index)


def _relation(
    name: str, graphs: Sequence[GraphLists], offsets: list[int]
) -> tuple[Relation, Tensor]:
    """The edges sorted by their target, and the order that sorts their columns."""
    empty: tuple[list[int], list[int]] = ([], [])
    pairs = [g.edges.get(name, empty) for g in graphs]
    moved = list(zip(pairs, offsets, strict=False))
    source = _long(node + offset for (sources, _), offset in moved for node in sources)
    target = _long(node + offset for (_, targets), offset in moved for node in targets)
    order = torch.argsort(target, stable=True)
    ptr = pointers(torch.bincount(target, minlength=offsets[-1]))
    return Relation(ptr, source[order]), order


def _columns(schema: Schema, graphs: Sequence[GraphLists]) -> tuple[Columns, Dictionaries]:
    columns: Columns = {}
    dictionaries: Dictionaries = {}
    for space, specs in schema.spaces().items():
        columns[space] = {}
        for spec in specs:
            rows = _input_rows(graphs, spec) if space == "inputs" else _rows(graphs, space, spec)
            if spec.dtype == "string":
                rows, dictionaries[space, spec.name] = encode_strings(rows)
            columns[space][spec.name] = to_tensor(space, spec, rows)
    return columns, dictionaries


def _rows(graphs: Sequence[GraphLists], space: str, spec: Column) -> list[Any]:
    parts = (g.columns.get(space, {}).get(spec.name, ()) for g in graphs)
    return list(chain.from_iterable(parts))


def _input_rows(graphs: Sequence[GraphLists], spec: Column) -> list[Any]:
    rows: list[Any] = []
    for graph in graphs:
        for node, inputs in enumerate(graph.inputs):
            values = graph.input_values.get(node, {}).get(spec.name)
            rows += [None] * len(inputs) if values is None else values
    return rows


def encode_strings(words: list[str | None]) -> tuple[list[int], tuple[str, ...]]:
    """Codes of strings, in order of first occurrence, and the different strings."""
    code: dict[str, int] = {}
    codes = [MISSING if word is None else code.setdefault(word, len(code)) for word in words]
    return codes, tuple(code)


def to_tensor(space: str, column: Column, rows: list[Any]) -> Tensor:
    """[num_rows, *shape] the values of a column; None is a missing one.

    Args:
        space: the kind of row, for messages.
        column: the column; one of strings holds their codes already.
        rows: its values.

    Raises:
        SchemaError: if a value does not fit the column.
    """
    if column.shape:
        absent = np.full(column.shape, column.missing)
        rows = [absent if row is None else row for row in rows]
    else:
        rows = [column.missing if row is None else row for row in rows]
    try:
        array = np.asarray(rows) if rows else np.empty((0, *column.shape))
        if array.shape != (len(rows), *column.shape):
            raise ValueError(f"its values have the shape {list(array.shape[1:])}")
        tensor = torch.as_tensor(array, dtype=column.torch_dtype, device="cpu")
        is_changed = not tensor.is_floating_point() and tensor.numpy().dtype != array.dtype
        if is_changed and (tensor.numpy() != array).any():
            raise ValueError(f"of {array.dtype}, it would hold other numbers")
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise SchemaError(
            f"column '{column.name}' of {space} cannot be {column.dtype}{list(column.shape)}: "
            f"{error}. Give numbers of that shape."
        ) from error
    return tensor


def _long(values: Any) -> Tensor:
    return torch.from_numpy(np.fromiter(values, dtype=np.int64))
