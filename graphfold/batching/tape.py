"""Tape: what one group read and wrote, kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphfold.batching.cell import NodeInput
from graphfold.batching.children import StateReader
from graphfold.batching.pass_inputs import PassInputs
from graphfold.batching.schedule import Group
from graphfold.batching.segment import gather_sum, segment_sum

#: Adds a gradient with respect to a leaf to where the leaf was read from.
Deposit = Callable[[Tensor, "Gradients"], None]


@dataclass(frozen=True)
class Gradients:
    """The gradients that backward collects, laid out as the tensors they belong to."""

    state: dict[str, Tensor]  # field -> [num_nodes + 1, width]
    given: dict[str, Tensor]
    x: dict[tuple[int, str], Tensor]
    edge: dict[str, Tensor]


@dataclass
class Tape:
    """One group's leaves with where they came from, and its outputs by field."""

    group: Group
    leaves: list[Tensor] = field(default_factory=list)
    deposits: list[Deposit] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def leaf(self, value: Tensor, deposit: Deposit) -> Tensor:
        """`value` as the beginning of the group's own autograd graph."""
        value = value.detach().requires_grad_()
        self.leaves.append(value)
        self.deposits.append(deposit)
        return value


class TapeReader(StateReader):
    """Reads rows of the state buffers; with a tape, as leaves whose gradients find their way back.

    A field that a cell reads twice in the same way is gathered once.
    """

    def __init__(
        self,
        inputs: PassInputs,
        buffers: dict[str, Tensor],
        group: Group,
        ptr: Tensor,
        tape: Tape | None,
    ) -> None:
        edges = slice(group.edge_start, group.edge_stop)
        self._state = {**inputs.given, **buffers}
        self._given = inputs.given
        self._written = buffers.keys()
        self._own = slice(group.start, group.stop)
        self._plan = inputs.plan
        self._index = inputs.plan.child_row[edges]
        self._parent = inputs.plan.parent[edges]
        self._ptr = ptr
        self._tape = tape
        self._seen: dict[tuple[str, str], Tensor] = {}

    def rows(self, field: str) -> Tensor:
        def read() -> Tensor:
            return self._state[field].index_select(0, self._index)

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            self._of(gradients, field).index_add_(0, self._index, grad)

        return self._read("rows", field, read, deposit)

    def child_count(self) -> Tensor:
        return self._plan.child_count(self._index)

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        if weight is not None:
            return segment_sum(self.rows(field) * weight.unsqueeze(1), self._ptr, self._parent)

        def read() -> Tensor:
            return gather_sum(self._state[field], self._index, self._ptr)

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            rows = grad.index_select(0, self._parent)
            self._of(gradients, field).index_add_(0, self._index, rows)

        return self._read("sum", field, read, deposit)

    def previous(self, field: str) -> Tensor:
        def read() -> Tensor:
            return self._given[field][self._own]

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.given[field][self._own] += grad

        return self._read("previous", field, read, deposit)

    def _of(self, gradients: Gradients, field: str) -> Tensor:
        return (gradients.state if field in self._written else gradients.given)[field]

    def _read(self, how: str, field: str, read: Callable[[], Tensor], deposit: Deposit) -> Tensor:
        if (how, field) not in self._seen:
            with torch.no_grad():
                value = read()
            if self._tape is not None:
                value = self._tape.leaf(value, deposit)
            self._seen[how, field] = value
        return self._seen[how, field]


def read_x(inputs: PassInputs, group: Group, tape: Tape | None) -> NodeInput:
    """The group's rows of its input, as leaves where a gradient is wanted."""
    rows = slice(group.type_start, group.type_start + group.stop - group.start)

    def read(name: str, value: Tensor) -> Tensor:
        part = value[rows]
        if tape is None or not value.requires_grad:
            return part

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.x[group.op_type, name][rows] = grad

        return tape.leaf(part, deposit)

    value = inputs.x[group.op_type]
    if isinstance(value, Tensor):
        return read("", value)
    return {name: read(name, tensor) for name, tensor in value.items()}


def read_edge(inputs: PassInputs, group: Group, tape: Tape | None) -> dict[str, Tensor]:
    """The columns of the group's edges, as leaves where a gradient is wanted."""
    edges = slice(group.edge_start, group.edge_stop)

    def read(name: str, value: Tensor) -> Tensor:
        part = value[edges]
        if tape is None or not value.requires_grad:
            return part

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.edge[name][edges] = grad

        return tape.leaf(part, deposit)

    return {name: read(name, value) for name, value in inputs.edge.items()}
