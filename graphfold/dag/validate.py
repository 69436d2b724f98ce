"""Checks that a `TypedDAG` keeps every promise of its format and of its schema."""

from __future__ import annotations

import numpy as np
import torch

from graphfold.dag.depth import compute_depth, run_numbers
from graphfold.dag.schema import MISSING, Column
from graphfold.dag.typed_dag import TypedDAG
from graphfold.errors import GraphError, SchemaError


def validate(dag: TypedDAG, is_built: bool = False) -> None:
    """Raises at the first broken promise; the message names the file and line of the graph.

    Indices are checked by NumPy: on a single small graph torch takes three times as long.

    Args:
        dag: the graphs.
        is_built: whether a `GraphBuilder` has just made them; then pointers, depths and indices
            are right.

    Raises:
        GraphError: a cycle, a dangling or foreign input, a graph without an output node.
        SchemaError: a wrong arity, input type, dtype, shape, number of rows or code.
    """
    if not is_built:
        _check_pointers(dag)
        _check_inputs(dag)
        if not torch.equal(compute_depth(dag.input_ptr, dag.input_index), dag.depth):
            raise GraphError("stored depths differ from the longest paths. Build the graph again.")
    _check_arity(dag)
    _check_input_types(dag)
    for space, columns in dag.schema.spaces().items():
        for column in columns:
            _check_column(dag, space, column)


def _check_pointers(dag: TypedDAG) -> None:
    pairs = {"input": (dag.input_ptr, dag.input_index, dag.num_nodes)}
    pairs["output"] = (dag.output_ptr, dag.output_index, dag.num_graphs)
    for name, relation in dag.relations.items():
        pairs[f"relation {name}"] = (relation.ptr, relation.index, dag.num_nodes)
    for name, (tensor, index, count) in pairs.items():
        ptr = tensor.numpy()
        ends = (0, len(index))
        if len(ptr) != count + 1 or (ptr[0], ptr[-1]) != ends or (ptr[1:] < ptr[:-1]).any():
            raise GraphError(
                f"the {name} pointers do not cover their index. Build the graph again."
            )
    batch, output_ptr, node_ptr = dag.batch.numpy(), dag.output_ptr.numpy(), dag.node_ptr.numpy()
    if (batch[1:] < batch[:-1]).any():
        raise GraphError("the nodes of a graph are not contiguous. Sort nodes by graph.")
    empty = (output_ptr[1:] == output_ptr[:-1]) & (node_ptr[1:] > node_ptr[:-1])
    if empty.any():
        graph = int(empty.argmax())
        raise GraphError(
            f"{_place(dag, graph)}: graph has no output node. Name its root.", graph=graph
        )


def _check_inputs(dag: TypedDAG) -> None:
    batch, num_nodes = dag.batch.numpy(), dag.num_nodes
    groups = [("input", dag.input_index, batch[run_numbers(dag.input_ptr.numpy())], -1)]
    groups.append(("output", dag.output_index, run_numbers(dag.output_ptr.numpy()), 0))
    for name, relation in dag.relations.items():
        graph = batch[run_numbers(relation.ptr.numpy())]
        groups.append((f"source of relation '{name}'", relation.index, graph, 0))
    for what, tensor, graph, least in groups:
        index = tensor.numpy()
        outside = (index < least) | (index >= num_nodes)
        if num_nodes:
            outside |= (index >= 0) & (batch[index.clip(0, num_nodes - 1)] != graph)
        if outside.any():
            row = int(outside.argmax())
            number, owner = int(index[row]), int(graph[row])
            first = int(dag.node_ptr[owner])
            raise GraphError(
                f"{_place(dag, owner)}: {what} {number - first} is not a node of the graph, which "
                f"has {int(dag.node_ptr[owner + 1]) - first} nodes. Name one of its own nodes.",
                node=number,
            )


def _check_arity(dag: TypedDAG) -> None:
    ptr, op_type = dag.input_ptr.numpy(), dag.op_type.numpy()
    count = ptr[1:] - ptr[:-1]
    for index, node_type in enumerate(dag.schema.types):
        if node_type.arity is None:
            continue
        bad = (op_type == index) & (count != node_type.arity)
        if bad.any():
            node = int(bad.argmax())
            raise SchemaError(
                f"{_place(dag, int(dag.batch[node]))}: node {_local(dag, node)} of type "
                f"'{node_type.name}' has {int(count[node])} inputs, but its type has "
                f"{node_type.arity}. Give each slot an input, or None for an absent one.",
                node=node,
            )


def _check_input_types(dag: TypedDAG) -> None:
    if all(node_type.inputs is None for node_type in dag.schema.types):
        return
    child, op_type = dag.input_index.numpy(), dag.op_type.numpy()
    parent = run_numbers(dag.input_ptr.numpy())
    child_type = op_type[child.clip(0)] if dag.num_nodes else child
    for index, node_type in enumerate(dag.schema.types):
        if node_type.inputs is None:
            continue
        allowed = [dag.schema.type_index(name) for name in node_type.inputs]
        bad = (child >= 0) & (op_type[parent] == index) & ~np.isin(child_type, allowed)
        if bad.any():
            row = int(bad.argmax())
            node, name = int(parent[row]), dag.schema.types[int(child_type[row])].name
            raise SchemaError(
                f"{_place(dag, int(dag.batch[node]))}: node {_local(dag, node)} of type "
                f"'{node_type.name}' has an input of type '{name}'. It may read: "
                f"{', '.join(node_type.inputs) or 'none'}.",
                node=node,
            )


def _check_column(dag: TypedDAG, space: str, column: Column) -> None:
    if column.name not in dag.columns.get(space, {}):
        raise SchemaError(f"column '{column.name}' of {space} is absent. Add it to the graph.")
    tensor = dag.columns[space][column.name]
    want = (dag.num_rows(space), *column.shape)
    if tensor.dtype != column.torch_dtype or tuple(tensor.shape) != want:
        raise SchemaError(
            f"column '{column.name}' of {space} is {tensor.dtype}{list(tensor.shape)}, but its "
            f"schema says {column.torch_dtype}{list(want)}. Convert it."
        )
    size = column.size
    if column.dtype == "string":
        size = len(dag.dictionaries[space, column.name])
    if size is None or not tensor.numel() or tensor.dtype.is_floating_point:
        return
    codes = tensor.numpy()
    least, most = int(codes.min()), int(codes.max())
    if least < MISSING or most >= size:
        raise SchemaError(
            f"column '{column.name}' of {space} has codes from {least} to {most}, outside "
            f"0 .. {size - 1}. Correct the labels or the size."
        )


def _local(dag: TypedDAG, node: int) -> int:
    return node - int(dag.node_ptr[dag.batch[node]])


def _place(dag: TypedDAG, graph: int) -> str:
    file, line = dag.place(graph)
    return f"{file}:{line}" if line else f"graph {graph}"
