"""Lowering: from Python examples to graphs, without a single tensor operation.

An example runs through the blocks, and every primitive adds one node; blocks that only wire add
none. The outputs of an example and the values of metrics are edges of a relation from their node to
the first node of the example, which stands for the example and computes nothing.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfold._torch import outside_modes
from graphfold.blocks.constants import FromTensor
from graphfold.blocks.contexts import Recorder, run
from graphfold.blocks.inference.types import ResultType, SequenceType, TensorType, TupleType
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.running.cells import Constant, Source
from graphfold.blocks.running.node_types import LENGTHS, OUTPUTS, NodeTypes, widen
from graphfold.blocks.running.results import Metric, Results
from graphfold.dag import Relation, TypedDAG, collate, compute_depth
from graphfold.dag.typed_dag import pointers
from graphfold.errors import ConfigError, add_note

#: Runs of examples per process, so that one with large examples does not delay the others.
RUNS_PER_PROCESS = 4

#: The arguments of the forked processes: blocks hold functions, which cannot be pickled.
_SHARED: list[tuple[NodeTypes, Results, Sequence[Any]]] = []


class Output(NamedTuple):
    """A tensor that a node will compute."""

    node: int  # its number in the example
    number: int  # which of the node's outputs


class Label:
    """The label of a value of a metric; equal only to itself.

    Args:
        value: any object.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class GraphRecorder(Recorder):
    """Records the calls that examples need, as graphs.

    Args:
        node_types: the node types of the model, to which new ones are added.
        results: the results of the model.
        first: the number of the first example.
    """

    def __init__(self, node_types: NodeTypes, results: Results, first: int = 0) -> None:
        super().__init__()
        self._first = first
        self._types = node_types
        self._results = results
        self._names = node_types.operations.name_of
        self._sizes = {block: len(block.output_tensors) for block in self._names}
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
        self._copies = node_types.operations.copies

    def example(self, example: Any) -> None:
        """Runs one example through the root."""
        self._anchors.append(self._node(0, ()))
        root = self._results.root
        value = run(root, self, example)
        self._give(root.output_type, [value], 0)
        self._output_ends.append(len(self._outputs))
        self._length_ends.append(len(self._lengths))

    @outside_modes
    def build(self) -> TypedDAG:
        """All examples so far."""
        schema = self._types.schema
        num_nodes, num_graphs = len(self._op_type), len(self._anchors)
        anchors = _long([*self._anchors, num_nodes])
        input_ptr = _long([0, *self._ends])
        input_index = _long(self._inputs)
        outputs, lengths = _long(self._outputs).reshape(-1, 4), _long(self._lengths).reshape(-1, 2)
        batch = torch.repeat_interleave(torch.arange(num_graphs, device="cpu"), anchors.diff())
        num_outputs = _long([0, *self._output_ends]).diff()
        num_lengths = _long([0, *self._length_ends]).diff()
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
        file = torch.full((num_graphs,), -1, device="cpu")  # there is none
        numbers = torch.arange(self._first, self._first + num_graphs, device="cpu")
        return TypedDAG(
            schema=schema,
            op_type=_long(self._op_type),
            input_ptr=input_ptr,
            input_index=input_index,
            batch=batch,
            num_graphs=num_graphs,
            depth=compute_depth(input_ptr, input_index),
            output_ptr=torch.arange(num_graphs + 1, device="cpu"),
            output_index=anchors[:-1],
            span=torch.full((num_nodes, 2), -1, device="cpu"),
            origin=torch.stack([file, torch.zeros_like(file), numbers], 1),
            columns=columns,
            relations={
                OUTPUTS: Relation(_at(anchors, num_outputs), outputs[:, 0].contiguous()),
                LENGTHS: Relation(
                    _at(anchors, num_lengths), torch.repeat_interleave(anchors[:-1], num_lengths)
                ),
            },
            dictionaries={(f"relation:{OUTPUTS}", "label"): tuple(self._labels)},  # type: ignore
        )

    def from_example(self, kind: TensorType, value: np.ndarray) -> Any:
        return value

    def visit(self, primitive: Primitive, x: Any) -> Any:
        return primitive.lower(self, x)

    def constant(self, block: FromTensor) -> Constant:
        return Constant(self._names[block])

    def node(self, block: Primitive, tensors: Iterable[Any]) -> list[Output]:
        slots: dict[int, int] = {}
        sources: list[Source] = []
        values = []
        for tensor in tensors:
            if isinstance(tensor, Output):
                node, number = tensor
                sources.append((slots.setdefault(node, len(slots)), number))
            elif isinstance(tensor, Constant):
                sources.append(tensor)
            else:
                sources.append(None)
                values.append(tensor)
        op_type = self._types.find(self._names[block], tuple(sources))
        node = self._node(op_type, slots)
        if values:
            columns = self._columns.get(op_type)
            if columns is None:
                columns = self._columns[op_type] = [[] for _ in values]
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return [Output(node, number) for number in range(self._sizes[block])]

    def reduction(self, block: Primitive, tensors: Sequence[Any], kind: TensorType) -> Output:
        outputs = [self._as_output(tensor, kind) for tensor in tensors]
        number = outputs[0].number if outputs else 0
        if any(output.number != number for output in outputs):
            copy = self._copies[kind]
            outputs = [o if o.number == 0 else self.node(copy, (o,))[0] for o in outputs]
            number = 0
        op_type = self._types.find(self._names[block], number)
        return Output(self._node(op_type, [output.node for output in outputs]), 0)

    def metric(self, metric: Metric, value: Any, label: Any) -> None:
        node, number = self._as_output(value, metric.tensor)
        code = -1
        if metric.has_labels:
            code = len(self._labels)
            self._labels.append(Label(label))
        self._outputs.append((node, self._results.metric_slot(metric.name), number, code))

    def _node(self, op_type: int, inputs: Iterable[int]) -> int:
        self._op_type.append(op_type)
        self._inputs.extend(inputs)
        self._ends.append(len(self._inputs))
        return len(self._op_type) - 1

    def _as_output(self, value: Any, kind: TensorType) -> Output:
        """The output of a node for a tensor; a node is made for an array or a constant."""
        return value if isinstance(value, Output) else self.node(self._copies[kind], (value,))[0]

    def _give(self, kind: ResultType | None, values: list[Any], slot: int) -> int:
        """Notes instances of a type as outputs, from `slot` on; returns the next slot."""
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
    """Records examples as graphs.

    Args:
        node_types: the node types of the model, to which new ones are added.
        results: the results of the model.
        examples: the examples.
        first: the number of the first of them.

    Raises:
        GraphfoldError: if an example does not fit the blocks; a note names it.
    """
    recorder = GraphRecorder(node_types, results, first)
    number = first
    try:
        for example in examples:
            recorder.example(example)
            number += 1
    except Exception as error:  # of a function that a block calls, too
        add_note(error, f"in example {number} (counted from 0)")
        raise
    return recorder.build()


def lower_in_processes(
    node_types: NodeTypes, results: Results, examples: Sequence[Any], num_workers: int
) -> TypedDAG:
    """`lower` in several processes, with the same result.

    Args:
        node_types: as in `lower`.
        results: as in `lower`.
        examples: as in `lower`.
        num_workers: the number of processes.

    Raises:
        ConfigError: if this system cannot fork processes.
        GraphfoldError: if an example does not fit; a note names it.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        raise ConfigError(
            "examples are lowered by forked processes, which this system lacks. Use num_workers=0."
        )
    size = max(1, -(-len(examples) // (num_workers * RUNS_PER_PROCESS)))
    bounds = [(start, start + size) for start in range(0, len(examples), size)]
    _SHARED.append((node_types, results, examples))
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
            parts = list(pool.map(_lower_run, bounds))
    finally:
        _SHARED.clear()
    for part in parts:
        node_types.learn(part.schema)
    schema = node_types.schema
    return collate([widen(part, schema) for part in parts])


def _lower_run(bounds: tuple[int, int]) -> TypedDAG:
    node_types, results, examples = _SHARED[-1]
    return lower(node_types, results, examples[slice(*bounds)], first=bounds[0])


def _at(anchors: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """[num_nodes + 1] pointers of edges that all end at the first node of their graph."""
    per_node = torch.zeros(int(anchors[-1]), dtype=torch.int64, device="cpu")
    per_node[anchors[:-1]] = counts
    return pointers(per_node)


def _column(rows: list[Any], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not rows:
        return torch.zeros((0, *shape), dtype=dtype, device="cpu")
    return torch.from_numpy(np.array(rows)).to(dtype)


def _long(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")
