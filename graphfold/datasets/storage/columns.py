"""A `TypedDAG` as flat columns with local node numbers, the form in which graphs are stored.

Every column belongs to a space whose rows are counted per graph, so that graphs can be appended
one after another and a row range of a column is a graph. Node numbers are those within the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import Relation, Schema, TypedDAG
from graphfold.dag.typed_dag import Dictionaries, pointers

Array = np.ndarray


class Field(NamedTuple):
    """One stored column: its name, the space that its rows are counted in, dtype and shape."""

    name: str
    space: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    dictionary: tuple[str, str] | None = None  # key of its strings, where it holds codes of them


def fields(schema: Schema) -> list[Field]:
    """All stored columns of graphs of a schema."""
    long = torch.int64
    structure = [
        Field("op_type", "node", long, ()),
        Field("depth", "node", long, ()),
        Field("span", "node", long, (2,)),
        Field("num_inputs", "node", long, ()),
        Field("input", "inputs", long, ()),
        Field("output", "output", long, ()),
        Field("origin", "graph", long, (3,)),
    ]
    for edge in schema.relations:
        structure.append(Field(f"num_edges_into:{edge.name}", "node", long, ()))
        structure.append(Field(f"edge_source:{edge.name}", f"relation:{edge.name}", long, ()))
    return structure + [
        Field(
            f"{space}/{column.name}",
            space,
            column.torch_dtype,
            column.shape,
            (space, column.name) if column.dtype == "string" else None,
        )
        for space, columns in schema.spaces().items()
        for column in columns
    ]


def row_counts(dag: TypedDAG) -> dict[str, Array]:
    """Space -> [num_graphs] how many rows each graph has in it."""
    spaces = [space for space in dag.schema.spaces() if space != "graph"]
    counts = {space: dag.row_ptr(space).diff().numpy() for space in spaces}
    return counts | {"output": dag.output_ptr.diff().numpy()}


def to_columns(dag: TypedDAG) -> dict[str, Array]:
    """Column name -> [num_rows, *shape], with node numbers counted from each graph's first node."""
    start = dag.node_ptr[:-1]
    columns = {
        "op_type": dag.op_type,
        "depth": dag.depth,
        "span": dag.span,
        "num_inputs": dag.input_ptr.diff(),
        "input": _moved(dag.input_index, -start, dag.row_ptr("inputs")),
        "output": dag.output_index - torch.repeat_interleave(start, dag.output_ptr.diff()),
        "origin": dag.origin,
    }
    for name, relation in dag.relations.items():
        columns[f"num_edges_into:{name}"] = relation.ptr.diff()
        columns[f"edge_source:{name}"] = _moved(
            relation.index, -start, dag.row_ptr(f"relation:{name}")
        )
    for space, group in dag.columns.items():
        columns |= {f"{space}/{name}": column for name, column in group.items()}
    return {name: column.numpy() for name, column in columns.items()}


def from_columns(
    schema: Schema,
    columns: Mapping[str, Tensor],
    row_ptr: Mapping[str, Tensor],
    num_graphs: int,
    dictionaries: Dictionaries,
    files: tuple[str, ...],
) -> TypedDAG:
    """The inverse of `to_columns`; columns that need no change are taken as they are.

    Args:
        schema: of the graphs.
        columns: as from `to_columns`.
        row_ptr: space -> [num_graphs + 1] where each graph's rows begin; "graph" may be absent.
        num_graphs: how many graphs there are.
        dictionaries: the strings of the columns of codes.
        files: what `origin` refers to.
    """
    node_ptr = row_ptr["node"]
    start = node_ptr[:-1]
    return TypedDAG(
        schema=schema,
        op_type=columns["op_type"],
        input_ptr=pointers(columns["num_inputs"]),
        input_index=_moved(columns["input"], start, row_ptr["inputs"]),
        batch=torch.repeat_interleave(torch.arange(num_graphs), node_ptr.diff()),
        num_graphs=num_graphs,
        depth=columns["depth"],
        output_ptr=row_ptr["output"],
        output_index=_moved(columns["output"], start, row_ptr["output"]),
        span=columns["span"],
        origin=columns["origin"],
        columns={
            space: {column.name: columns[f"{space}/{column.name}"] for column in group}
            for space, group in schema.spaces().items()
        },
        relations={
            edge.name: Relation(
                pointers(columns[f"num_edges_into:{edge.name}"]),
                _moved(
                    columns[f"edge_source:{edge.name}"], start, row_ptr[f"relation:{edge.name}"]
                ),
            )
            for edge in schema.relations
        },
        dictionaries=dictionaries,
        files=files,
    )


def _moved(index: Tensor, offset: Tensor, row_ptr: Tensor) -> Tensor:
    """Node numbers moved by their graph's `offset`; -1, an absent slot, stays."""
    moved = index + torch.repeat_interleave(offset, row_ptr.diff())
    return torch.where(index < 0, index, moved)
