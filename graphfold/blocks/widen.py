"""Graphs of one model that were lowered at different times, brought to one schema."""

from __future__ import annotations

from dataclasses import replace

import torch

from graphfold.dag import Schema, TypedDAG
from graphfold.errors import SchemaError


def widen(dag: TypedDAG, schema: Schema) -> TypedDAG:
    """The same graphs with a schema that has their types, and perhaps more, in any order.

    Raises:
        SchemaError: if the schema lacks a type of the graphs.
    """
    if dag.schema == schema:
        return dag
    number = {node_type.name: index for index, node_type in enumerate(schema.types)}
    for node_type in dag.schema.types:
        if node_type.name not in number:
            raise SchemaError(
                f"the schema lacks the node type '{node_type.name}'. Widen it with the model that "
                "lowered the graphs."
            )
    moved = torch.tensor([number[node_type.name] for node_type in dag.schema.types])
    columns = dict(dag.columns)
    for node_type in schema.types:
        empty = {
            column.name: torch.zeros((0, *column.shape), dtype=column.torch_dtype)
            for column in node_type.features
        }
        columns.setdefault(f"type:{node_type.name}", empty)
    return replace(dag, schema=schema, op_type=moved[dag.op_type], columns=columns)
