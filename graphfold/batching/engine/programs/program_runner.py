"""ProgramRunner: a cell's groups run by its program, with no autograd and little Python."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.cell import Cell
from graphfold.batching.engine.cell_modules import buffers_of
from graphfold.batching.engine.gradients import Gradients
from graphfold.batching.engine.lazy_gradients import LazyGradients
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.programs.pass_slots import PassSlots
from graphfold.batching.engine.programs.program import Program
from graphfold.batching.scheduling.schedule import Group


class ProgramRunner:
    """Runs the groups of one cell in one pass; see `CellRunner` for what it stands in for.

    Args:
        program: the cell's program.
        cell: the cell.
        op_type: the type of its nodes.
        inputs: the pass.
        state: field -> [num_rows + 1, width] what children are read from.
        places: field -> first row of a group -> its rows of what the pass writes.
        numbers: the number of each of the cell's parameters among those of the pass; None if no
            backward follows.
    """

    def __init__(
        self,
        program: Program,
        cell: Cell,
        op_type: int,
        inputs: PassInputs,
        state: Mapping[str, Tensor],
        places: Mapping[str, Mapping[int, Tensor]],
        numbers: Sequence[int] | None,
    ) -> None:
        self._program = program
        self._recompute = inputs.recompute
        self._places = [places[name] for name in cell.fields]
        own: list[Tensor] = [*inputs.parameters[op_type], *buffers_of(inputs.modules[op_type])]
        parameters = [tensor.detach() for tensor in own]
        self._constants = program.constants(*parameters, *parameters)
        slots = PassSlots(inputs, op_type, state)
        self._reads = [slots.read(program.slots[index]) for index in program.reads]
        if numbers is not None:
            self._given = [
                *own,
                *(value for _, value in parts(inputs.x[op_type])),
                *inputs.edge.values(),
                *(state[slot.name] for slot in program.slots if slot.is_apart),
            ]
            self._prepare_backward(cell, inputs, slots, numbers)

    def _prepare_backward(
        self, cell: Cell, inputs: PassInputs, slots: PassSlots, numbers: Sequence[int]
    ) -> None:
        program = self._program
        self._gathered = {slot.name for slot in program.slots if slot.how == "rows"}
        wanted = [slot for slot in program.slots if slot.needs_grad]
        of_children = [slot.name for slot in wanted if slot.how == "rows"]
        self._placed = of_children if inputs.plan.is_gathered else []
        self._backward = program.backward.without(placed=bool(self._placed))
        self._fields = tuple(cell.fields)
        self._sizes = [(width, inputs.dtype(name)) for name, width in cell.fields.items()]
        self._device = inputs.device
        self._versions: list[tuple[weakref.ref[Tensor], int]] = []
        self._puts = [slots.put(slot) for slot in wanted]
        self._uses = [
            (kind, _number(weight, numbers), _number(bias, numbers))
            for kind, weight, bias in program.layout.uses
        ]
        self._plain = [numbers[index] for index in program.layout.plain]

    def forward(self, group: Group) -> Sequence[Any]:
        """Runs a group; returns what backward needs of it."""
        places = [own[group.start] for own in self._places]
        read = [read(group) for read in self._reads]
        saved = self._program.forward(*read, *self._constants, *places)
        return () if self._recompute else saved

    def gathers(self, _: object, field: str) -> bool:
        """Whether a group has read its children's rows of a field."""
        return field in self._gathered

    def backward(
        self,
        group: Group,
        saved: Sequence[Any],
        gradients: Gradients,
        lazy: LazyGradients,
    ) -> None:
        """Adds the gradients of one group to those of the pass."""
        grads = [gradients.state[name].pull(group) for name in self._fields]
        missing = [index for index, grad in enumerate(grads) if grad is None]
        if len(missing) == len(grads):
            self._put_zeros(group, gradients)
            return
        if self not in gradients.checked:
            self._refuse_changes()
            gradients.checked.add(self)
        if self._recompute:
            saved = self._again(group)
        backward = self._backward
        if missing:
            backward = self._program.backward.without(frozenset(missing), bool(self._placed))
            zeros = self._new(group)
            for index in missing:
                grads[index] = zeros[index].zero_()
        places = [gradients.state[name].place(group) for name in self._placed]
        found = iter(backward(*saved, *self._constants, *grads, *places))
        for put_one, grad in zip(self._puts, found, strict=False):
            put_one(group, grad, gradients)
        for kind, weight, bias in self._uses:
            lazy.add(kind, weight, bias, next(found), next(found))
        for number, grad in zip(self._plain, found, strict=True):
            gradients.add_outside(number, grad)

    def finish(self, keep: bool) -> bool:
        """After the pass; lets go of what it read, if it is kept for backward. Returns False."""
        if keep:
            noted = (tensor for tensor in self._given if not tensor.is_inference())
            self._versions = [(weakref.ref(tensor), tensor._version) for tensor in noted]
            self._given = []
        if keep and not self._recompute:
            self._reads, self._places = [], []
        return False  # it was traced before

    def _refuse_changes(self) -> None:
        """Raises RuntimeError, as autograd does, if what the groups read was changed in place."""
        read = ((tensor(), version) for tensor, version in self._versions)
        if any(tensor is not None and tensor._version != version for tensor, version in read):
            raise RuntimeError(
                "a parameter or input of a cell was modified by an inplace operation before its "
                "gradient was computed."
            )

    def _again(self, group: Group) -> Sequence[Any]:
        """What forward left for backward; the state, which is there, is not written again."""
        read = [read(group) for read in self._reads]
        return self._program.forward(*read, *self._constants, *self._new(group))

    def _new(self, group: Group) -> list[Tensor]:
        """[group_size, width] memory for every field."""
        return [
            torch.empty(group.size, width, dtype=dtype, device=self._device)
            for width, dtype in self._sizes
        ]

    def _put_zeros(self, group: Group, gradients: Gradients) -> None:
        wanted = [slot for slot in self._program.slots if slot.needs_grad]
        for slot, put_one in zip(wanted, self._puts, strict=True):
            num_rows = group.size if slot.per == "node" else group.num_edges
            zeros = slot.like.new_zeros(num_rows, *slot.like.shape[1:])
            if slot.how == "rows":
                gradients.state[slot.name].put(group, zeros)
            else:
                put_one(group, zeros, gradients)


def _number(index: int | None, numbers: Sequence[int]) -> int | None:
    return None if index is None else numbers[index]
