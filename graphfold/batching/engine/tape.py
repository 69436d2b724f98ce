"""Tape: what one group read and wrote, kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from graphfold.batching.cell import NodeInput
from graphfold.batching.children import StateReader
from graphfold.batching.engine.gradients import Gradients, put
from graphfold.batching.engine.lazy_parameters import Use
from graphfold.batching.engine.pass_inputs import PassInputs
from graphfold.batching.kernels.segment import gather_sum, segment_sum
from graphfold.batching.scheduling.schedule import Group

#: Adds a gradient with respect to a leaf to where the leaf was read from.
Deposit = Callable[[Tensor, Gradients], None]


@dataclass
class Tape:
    """One group's leaves with where they came from, its outputs and its deferred uses."""

    leaves: list[Tensor] = field(default_factory=list)
    deposits: list[Deposit] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    gathered: set[str] = field(default_factory=set)  # fields of which the children's rows were read

    def leaf(self, value: Tensor, deposit: Deposit) -> Tensor:
        """`value` as the beginning of the group's own autograd graph."""
        value = value.detach().requires_grad_()
        self.leaves.append(value)
        self.deposits.append(deposit)
        return value

    def forget(self) -> None:
        """Lets go of all tensors."""
        for found in (self.leaves, self.deposits, self.outputs, self.uses):
            found.clear()


class TapeReader(StateReader):
    """Reads rows of the state buffers; with a tape, as leaves whose gradients find their way back.

    A field that a cell reads twice in the same way is gathered once.

    Args:
        inputs: the pass.
        state: field -> [num_rows + 1, width] what children are read from.
        group: the group that reads.
        tape: where leaves are noted, or None.
    """

    def __init__(
        self, inputs: PassInputs, state: Mapping[str, Tensor], group: Group, tape: Tape | None
    ) -> None:
        self._inputs = inputs
        self._plan = inputs.plan
        self._state = state
        self._group = group
        self._tape = tape
        self._seen: dict[tuple[str, str], Tensor] = {}

    @cached_property
    def ptr(self) -> Tensor:  # type: ignore[override]
        """[group_size + 1] where each node's edges begin."""
        return self._plan.group_ptr(self._group)

    @cached_property
    def parent(self) -> Tensor:  # type: ignore[override]
        """[num_child_edges] the position in the group of each edge's parent."""
        return self._plan.group_parent(self._group)

    @cached_property
    def _index(self) -> Tensor:
        return self._plan.group_child_row(self._group)

    def rows(self, field: str) -> Tensor:
        if ("rows", field) in self._seen:
            return self._seen["rows", field]
        group = self._group

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.state[field].put(group, grad)

        if self._tape is not None:
            self._tape.gathered.add(field)
        return self._keep("rows", field, self._gathered(field), deposit)

    def child_count(self) -> Tensor:
        if ("child_count", "") not in self._seen:
            self._seen["child_count", ""] = self._plan.child_count(self._index)
        return self._seen["child_count", ""]

    @property
    def seen(self) -> dict[tuple[str, str], Tensor]:
        """(how, field) -> what was read so far."""
        found = dict(self._seen)
        for how in ("ptr", "parent"):
            if how in self.__dict__:
                found[how, ""] = self.__dict__[how]
        return found

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        if weight is not None:
            return segment_sum(self.rows(field) * weight.unsqueeze(1), self.ptr, self.parent)
        if ("sum", field) in self._seen:
            return self._seen["sum", field]
        group = self._group

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.state[field].put_sum(group, grad)

        total = gather_sum(self._state[field].detach(), self._index, self.ptr)
        return self._keep("sum", field, total, deposit)

    def previous(self, field: str) -> Tensor:
        if ("previous", field) in self._seen:
            return self._seen["previous", field]
        rows, given = self._group.rows, self._inputs.given[field]
        if not given.requires_grad:
            self._seen["previous", field] = given[rows]
            return self._seen["previous", field]

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            gradients.given[field][rows] += grad

        return self._keep("previous", field, given[rows], deposit)

    def _gathered(self, field: str) -> Tensor:
        """[num_child_edges, width] the children's rows, cut off from the graph outside."""
        state = self._state[field]
        # They may be a view. Later groups write into other rows of the buffer; `data` has a version
        # of its own, so autograd does not take that for a change of these.
        own = state.detach() if self._tape is None else state.data
        return self._plan.read_children(own, self._group)

    def _keep(self, how: str, field: str, value: Tensor, deposit: Deposit) -> Tensor:
        if self._tape is not None:
            value = self._tape.leaf(value, deposit)
        self._seen[how, field] = value
        return value


def read_x(inputs: PassInputs, group: Group, tape: Tape | None) -> NodeInput:
    """The group's rows of its input, as leaves where a gradient is wanted."""
    rows = group.type_rows

    def read(name: str, value: Tensor) -> Tensor:
        part = value.detach()[rows]
        if tape is None or not value.requires_grad:
            return part

        key = group.op_type, name
        whole = inputs.hollow_x[key]

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            put(gradients.x, key, whole, rows, grad)

        return tape.leaf(part, deposit)

    value = inputs.x[group.op_type]
    if isinstance(value, Tensor):
        return read("", value)
    return {name: read(name, tensor) for name, tensor in value.items()}


def read_edge(inputs: PassInputs, group: Group, tape: Tape | None) -> dict[str, Tensor]:
    """The columns of the group's edges, as leaves where a gradient is wanted."""
    edges = group.edges

    def read(name: str, value: Tensor) -> Tensor:
        part = value.detach()[edges]
        if tape is None or not value.requires_grad:
            return part

        whole = inputs.hollow_edge[name]

        def deposit(grad: Tensor, gradients: Gradients) -> None:
            put(gradients.edge, name, whole, edges, grad)

        return tape.leaf(part, deposit)

    return {name: read(name, value) for name, value in inputs.edge.items()}
