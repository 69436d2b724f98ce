"""Lowering: from Python examples to graphs, without a single tensor operation.

An example runs through the blocks, and every call of a function leaves one node; blocks that only
wire leave none. The outputs of an example and the values of metrics are edges of a relation from
their node to the example's first node, which stands for the example and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from graphfold.blocks.constants import FromTensor
from graphfold.blocks.context import Context, run
from graphfold.blocks.function import Function
from graphfold.blocks.metric import Metric
from graphfold.blocks.node_types import LENGTHS, OUTPUTS, NodeTypes
from graphfold.blocks.operations import Source
from graphfold.blocks.reductions import Reduction
from graphfold.blocks.results import Results
from graphfold.blocks.types import ResultType, SequenceType, TensorType, TupleType
from graphfold.blocks.values import Constant, Output
from graphfold.dag import Relation, TypedDAG, compute_depth
from graphfold.dag.typed_dag import pointers
from graphfold.errors import add_note


class Label:
    """What came with a value of a metric; equal only to itself, whatever it holds.

    Args:
        value: any object.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class Recorder(Context):
    """Records what examples need computed.

    Args:
        node_types: the node types of the model, to which new ones are added.
        results: what the model gives back.
        first: the number of the first example.
    """

    def __init__(self, node_types: NodeTypes, results: Results, first: int = 0) -> None:
        super().__init__()
        self._first = first
        self._types = node_types
        self._results = results
        self._names = node_types.operations.name_of
        self._op_type: list[int] = []
        self._inputs: list[int] = []
        self._ends: list[int] = []  # where the inputs of each node end
        self._columns: dict[int, list[list[Any]]] = {}
        self._anchors: list[int] = []
        self._outputs: list[tuple[int, int, int, int]] = []  # (node, slot, number, label)
        self._output_ends: list[int] = []
        self._lengths: list[tuple[int, int]] = []  # (slot, length)
        self._length_ends: list[int] = []
        self._labels: list[Label] = []
        self._give_back = node_types.operations.materialisers

    def example(self, example: Any) -> None:
        """Runs one example through the root."""
        self._anchors.append(self._node(0, ()))
        root = self._results.root
        value = run(root, self, example)
        self._give(root.output_type, [value], 0)
        self._output_ends.append(len(self._outputs))
        self._length_ends.append(len(self._lengths))

    def build(self) -> TypedDAG:
        """All examples so far."""
        schema = self._types.schema
        num_nodes, num_graphs = len(self._op_type), len(self._anchors)
        anchors = _long([*self._anchors, num_nodes])
        input_ptr = _long([0, *self._ends])
        input_index = _long(self._inputs)
        outputs = torch.tensor(self._outputs, dtype=torch.int64).reshape(-1, 4)
        lengths = torch.tensor(self._lengths, dtype=torch.int64).reshape(-1, 2)
        batch = torch.repeat_interleave(torch.arange(num_graphs), anchors.diff())
        per_graph = _long([0, *self._output_ends]), _long([0, *self._length_ends])
        columns: dict[str, dict[str, torch.Tensor]] = {s: {} for s in schema.spaces()}
        for op_type, node_type in enumerate(schema.types):
            lists = self._columns.get(op_type, [[] for _ in node_type.features])
            columns[f"type:{node_type.name}"] = {
                column.name: _column(rows, column.torch_dtype, column.shape)
                for column, rows in zip(node_type.features, lists, strict=True)
            }
        slot, number, label = outputs[:, 1:].unbind(1)
        columns[f"relation:{OUTPUTS}"] = {"slot": slot, "number": number, "label": label}
        columns[f"relation:{LENGTHS}"] = {"slot": lengths[:, 0], "length": lengths[:, 1]}
        file = torch.full((num_graphs,), -1)  # there is none
        numbers = torch.arange(self._first, self._first + num_graphs)
        length_of_graph = per_graph[1].diff()
        return TypedDAG(
            schema=schema,
            op_type=_long(self._op_type),
            input_ptr=input_ptr,
            input_index=input_index,
            batch=batch,
            num_graphs=num_graphs,
            depth=compute_depth(input_ptr, input_index),
            output_ptr=torch.arange(num_graphs + 1),
            output_index=anchors[:-1],
            span=torch.full((num_nodes, 2), -1),
            origin=torch.stack([file, torch.zeros_like(file), numbers], 1),
            columns=columns,
            relations={
                OUTPUTS: Relation(_at(anchors, per_graph[0].diff()), outputs[:, 0].contiguous()),
                LENGTHS: Relation(
                    _at(anchors, length_of_graph),
                    torch.repeat_interleave(anchors[:-1], length_of_graph),
                ),
            },
            dictionaries={(f"relation:{OUTPUTS}", "label"): tuple(self._labels)},  # type: ignore
        )

    def from_example(self, kind: TensorType, value: Any) -> Any:
        return value

    def constant(self, block: FromTensor) -> Constant:
        return Constant(self._names[block])

    def call(self, function: Function, x: Any) -> Any:
        slots: dict[int, int] = {}
        sources: list[Source] = []
        values = []
        for value in function.flatten(x):
            if isinstance(value, Output):
                node, number = value
                sources.append((slots.setdefault(node, len(slots)), number))
            elif isinstance(value, Constant):
                sources.append(value)
            else:
                sources.append(None)
                values.append(value)
        op_type = self._types.find(self._names[function], tuple(sources))
        node = self._node(op_type, slots)
        if values:
            columns = self._columns.get(op_type)
            if columns is None:
                columns = self._columns[op_type] = [[] for _ in values]
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return function.unflatten([Output(node, n) for n in range(len(function.output_tensors))])

    def reduce(self, reduction: Reduction, items: Sequence[Any]) -> Output:
        outputs = [self._as_output(item, reduction.tensor) for item in items]
        number = outputs[0].number if outputs else 0
        if any(output.number != number for output in outputs):
            give = self._give_back[reduction.tensor]
            outputs = [o if o.number == 0 else self.call(give, o) for o in outputs]
            number = 0
        op_type = self._types.find(self._names[reduction], number)
        return Output(self._node(op_type, [output.node for output in outputs]), 0)

    def metric(self, metric: Metric, value: Any, label: Any) -> None:
        node, number = self._as_output(value, metric.tensor)
        code = -1
        if isinstance(metric.input_type, TupleType):
            code = len(self._labels)
            self._labels.append(Label(label))
        self._outputs.append((node, self._results.metric_slot(metric.name), number, code))

    def _node(self, op_type: int, inputs: Iterable[int]) -> int:
        self._op_type.append(op_type)
        self._inputs.extend(inputs)
        self._ends.append(len(self._inputs))
        return len(self._op_type) - 1

    def _as_output(self, value: Any, kind: TensorType) -> Output:
        """The tensor as the output of a node, which is made if it has none."""
        if isinstance(value, Output):
            return value
        found: Output = self.call(self._give_back[kind], value)
        return found

    def _give(self, kind: ResultType | None, values: list[Any], slot: int) -> int:
        """Notes some instances of a type as outputs; returns the slot after those of the type."""
        if isinstance(kind, TensorType):
            for value in values:
                node, number = self._as_output(value, kind)
                self._outputs.append((node, slot, number, -1))
            return slot + 1
        if isinstance(kind, TupleType):
            for number, item in enumerate(kind):
                slot = self._give(item, [value[number] for value in values], slot)
        elif isinstance(kind, SequenceType):
            self._lengths += [(slot, len(value)) for value in values]
            inside = [item for value in values for item in value]
            return self._give(kind.element_type, inside, slot + 1)
        return slot


def lower(
    node_types: NodeTypes, results: Results, examples: Iterable[Any], first: int = 0
) -> TypedDAG:
    """Examples as graphs.

    Args:
        node_types: the node types of the model, to which new ones are added.
        results: what the model gives back.
        examples: the examples.
        first: the number of the first of them.

    Raises:
        GraphfoldError: if an example does not fit the blocks; a note names it.
    """
    recorder = Recorder(node_types, results, first)
    number = first
    try:
        for example in examples:
            recorder.example(example)
            number += 1
    except Exception as error:  # also those of functions that blocks call
        add_note(error, f"in example {number} (counted from 0)")
        raise
    return recorder.build()


def _at(anchors: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """[num_nodes + 1] pointers of edges that all end at the first node of their graph."""
    per_node = torch.zeros(int(anchors[-1]), dtype=torch.int64)
    per_node[anchors[:-1]] = counts
    return pointers(per_node)


def _column(rows: list[Any], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not rows:
        return torch.zeros((0, *shape), dtype=dtype)
    return torch.from_numpy(np.array(rows)).to(dtype)


def _long(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)
