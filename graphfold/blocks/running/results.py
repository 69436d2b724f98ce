"""Results: the output of the root and the metrics, from the states of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching import States
from graphfold.batching.kernels.gather import RowIndex, select_rows
from graphfold.blocks.block import Block
from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.contexts import Depth, Evaluation, Recorder
from graphfold.blocks.inference.types import (
    BroadcastSequenceType,
    PyObjectType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    VoidType,
    in_dtype,
    pair_of,
)
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.running.cells import field_of, from_rows
from graphfold.blocks.running.node_types import LENGTHS, OUTPUTS
from graphfold.dag import TypedDAG

#: If fewer than one in so many nodes is read, the gradient names the rows.
_FEW = 8


class Metric(Primitive):
    """Collects tensors under a name, with optional labels; returns nothing.

    The values of all examples become one tensor, in the order in which the blocks ran, with
    gradients: a loss may be a metric.

    Args:
        metric_name: the name, as a string; several blocks may share it, for tensors of one type.

    Raises:
        BlockTypeError: if the input is neither a tensor nor (tensor, Python object).
    """

    expected_input = (TensorType, TupleType)

    def __init__(self, metric_name: object) -> None:
        super().__init__(output_type=VoidType(), name=str(metric_name))

    @property
    def tensor(self) -> TensorType:
        """The type of one value."""
        kind = self.input_type
        kind = kind[0] if isinstance(kind, TupleType) else kind
        assert isinstance(kind, TensorType)
        return kind

    @property
    def operation(self) -> None:
        """None: a metric only names the results of other blocks."""
        return None

    @property
    def has_labels(self) -> bool:
        """True if values come with labels."""
        return isinstance(self.input_type, TupleType)

    def metrics(self) -> Mapping[str, TensorType]:
        return {self.name: self.tensor}

    def evaluate(self, evaluation: Evaluation, x: Any) -> None:
        evaluation.metrics.setdefault(self.name, []).append(self._split(x)[0])

    def lower(self, recorder: Recorder, x: Any) -> None:
        recorder.metric(self, *self._split(x))

    def depth(self, depth: Depth, x: Any) -> None:
        depth.note(1 + self._split(x)[0])

    def _split(self, x: Any) -> tuple[Any, Any]:
        return x if self.has_labels else (x, None)

    def _infer_from_input(self, kind: ResultType) -> None:
        if not isinstance(kind, TupleType):
            return
        value, label = pair_of(kind, f"(tensor, PyObject) by {self}")
        if not isinstance(value, TensorType) or not isinstance(label, PyObjectType):
            raise BlockTypeError(f"{self} takes (tensor, PyObject), not {kind}.")


@dataclass(frozen=True)
class Result:
    """The output and the metrics of a model for some examples.

    Attributes:
        output: an instance of the root's output type, with tensors [num_examples, ...]. A sequence
            is a list of the sequences of each example: a tensor [length, ...] if its elements are
            tensors, otherwise a list as in `eval`.
        metrics: name -> [num_values, ...], in the order of the examples and, within one, in which
            the blocks ran.
        labels: name -> the labels of these values, for metrics that take labels; None for a value
            of a block of that name without labels. Empty if no metric takes labels.
    """

    output: Any
    metrics: dict[str, Tensor]
    labels: dict[str, list[Any]]


class Results:
    """The slots of a root's results: one for every tensor, sequence and metric.

    Args:
        root: the root.
        blocks: all blocks.
    """

    def __init__(self, root: Block, blocks: list[Block]) -> None:
        self.root = root
        self._kind: ResultType = root.output_type  # type: ignore[assignment]
        metrics = [block for block in blocks if isinstance(block, Metric)]
        self._metrics = {metric.name: metric.tensor for metric in metrics}
        self._labelled = sorted({b.name for b in metrics if b.has_labels})
        first = sum(isinstance(p, (TensorType, SequenceType)) for p in _parts(self._kind))
        self._slot_of = {name: first + n for n, name in enumerate(sorted(self._metrics))}

    def check(self, ragged: bool) -> None:
        """Checks that the outputs of the root can be batched.

        Args:
            ragged: whether sequences are allowed.

        Raises:
            BlockTypeError: if they are Python objects or endless sequences, or there are none.
        """
        kind, kinds = self._kind, list(self._kind.terminal_types())
        if any(isinstance(item, PyObjectType) for item in kinds):
            raise BlockTypeError(
                f"root outputs must all be tensors: {kind} of {self.root}. Turn Python objects "
                "into tensors."
            )
        if not kinds and not self._metrics:
            raise BlockTypeError(
                f"root must have at least one output or metric tensor: {kind} of {self.root}."
            )
        refused = BroadcastSequenceType if ragged else SequenceType
        if any(isinstance(part, refused) for part in _parts(kind)):
            raise BlockTypeError(
                f"root output may not contain sequences: {kind} of {self.root}. Reduce them, "
                "collect values with Metric, or compile with ragged=True."
            )

    def metric_slot(self, name: str) -> int:
        """The slot of a metric."""
        return self._slot_of[name]

    def collect(self, dag: TypedDAG, states: States, dtype: torch.dtype | None) -> Result:
        """The results for a batch.

        Args:
            dag: the batch.
            states: the states of its nodes.
            dtype: the dtype of floating-point results; None for the dtype of their types.
        """
        slots = _Slots(dag, states, dtype)
        output, _ = slots.batched(self._kind, dag.num_graphs, 0)
        metrics = {n: slots.tensors(self._slot_of[n], self._metrics[n]) for n in self._slot_of}
        columns = dag.host.columns[f"relation:{OUTPUTS}"]
        return Result(output, metrics, self._labels(dag, columns["label"], columns["slot"]))

    def _labels(self, dag: TypedDAG, label: Tensor, slot: Tensor) -> dict[str, list[Any]]:
        dictionary = dag.dictionaries.get((f"relation:{OUTPUTS}", "label"), ())
        labels: dict[str, list[Any]] = {name: [] for name in self._labelled}
        by_slot = {self._slot_of[name]: values for name, values in labels.items()}
        if dictionary:  # graphs may have been stored without their labels
            for code, place in zip(label.tolist(), slot.tolist(), strict=True):
                if place in by_slot:
                    by_slot[place].append(dictionary[code].value if code >= 0 else None)
        return labels


@dataclass(frozen=True)
class _Slots:
    """The values in the slots of a batch."""

    dag: TypedDAG
    states: States
    dtype: torch.dtype | None

    def tensors(self, slot: int, kind: TensorType) -> Tensor:
        """[num_values, ...] the tensors of a slot, in the order of the examples."""
        found, dtype = self._find(slot), in_dtype(kind, self.dtype)
        if not found:
            return torch.zeros((0, *kind.shape), dtype=dtype, device=self.dag.device)
        parts = [self._rows(field_of(number, kind), nodes) for number, _, nodes in found]
        if len(parts) == 1:
            return from_rows(parts[0], kind).to(dtype)
        rows = parts[0].new_zeros(sum(map(len, parts)), parts[0].shape[1])
        for (_, places, _), part in zip(found, parts, strict=True):
            rows = rows.index_copy(0, places.rows, part)
        return from_rows(rows, kind).to(dtype)

    def _find(self, slot: int) -> list[tuple[int, RowIndex, RowIndex]]:
        """Number of an output of nodes -> the places in a slot that it fills, and their nodes."""
        key = OUTPUTS, slot
        if key not in self.dag.indices:
            self.dag.indices[key] = _find_outputs(self.dag, slot)
        return self.dag.indices[key]  # type: ignore[no-any-return]

    def _rows(self, field: str, nodes: RowIndex) -> Tensor:
        """[len(nodes), width] the field of some nodes."""
        if _FEW * len(nodes.rows) < self.dag.num_nodes:
            return self.states.at(field, nodes)  # its gradient names the rows
        return select_rows(self.states[field], nodes)

    def batched(self, kind: ResultType, count: int, slot: int) -> tuple[Any, int]:
        """A batch of `count` instances of a type, which begins at `slot`; then the next slot."""
        if isinstance(kind, TensorType):
            return self.tensors(slot, kind), slot + 1
        if isinstance(kind, TupleType):
            items = []
            for item in kind:
                value, slot = self.batched(item, count, slot)
                items.append(value)
            return tuple(items), slot
        if isinstance(kind, SequenceType):
            lengths = self.lengths(slot)
            inside, slot = self.batched(kind.element_type, sum(lengths), slot + 1)
            return _split(kind.element_type, inside, lengths), slot
        return None, slot

    def lengths(self, slot: int) -> list[int]:
        """The lengths of the sequences of a slot."""
        columns = self.dag.host.columns[f"relation:{LENGTHS}"]
        lengths: list[int] = columns["length"][columns["slot"] == slot].tolist()
        return lengths


@outside_modes  # a later training reads them, too
def _find_outputs(dag: TypedDAG, slot: int) -> list[tuple[int, RowIndex, RowIndex]]:
    columns, nodes = dag.host.columns[f"relation:{OUTPUTS}"], dag.host.relations[OUTPUTS].index
    edges = torch.nonzero(columns["slot"] == slot).view(-1)
    numbers, found = columns["number"][edges], []
    for number in torch.unique(numbers).tolist():
        places = torch.nonzero(numbers == number).view(-1)
        pair = (RowIndex.for_device(rows, dag.device) for rows in (places, nodes[edges[places]]))
        found.append((number, *pair))
    return found


def _split(kind: ResultType, values: Any, lengths: list[int]) -> list[Any]:
    """Splits a batch of elements into sequences: tensors if the elements are tensors, or lists."""
    if isinstance(kind, TensorType):
        return list(torch.split(values, lengths))
    elements = _elements(kind, values, sum(lengths))
    return [
        elements[end - length : end]
        for end, length in zip(accumulate(lengths), lengths, strict=True)
    ]


def _elements(kind: ResultType, values: Any, count: int) -> Sequence[Any]:
    """The elements of a batch, one by one."""
    if isinstance(kind, TensorType):
        return torch.unbind(values)
    if isinstance(kind, TupleType):
        items = [_elements(item, v, count) for item, v in zip(kind, values, strict=True)]
        return list(zip(*items, strict=True)) if items else [()] * count
    return values if isinstance(kind, SequenceType) else [None] * count


def _parts(kind: ResultType) -> Iterator[ResultType]:
    """A type and all types in it."""
    yield kind
    if isinstance(kind, TupleType):
        for item in kind:
            yield from _parts(item)
    elif isinstance(kind, SequenceType):
        yield from _parts(kind.element_type)
