"""ProgramRunner: a cell's groups run by its program, with no autograd and little Python."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.cell import Cell
from graphfold.batching.engine.cell_modules import buffers_of
from graphfold.batching.engine.gradients import Gradients, put
from graphfold.batching.engine.lazy import LazyGradients
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.programs.program import Program, Slot
from graphfold.batching.kernels.segment import gather_sum
from graphfold.batching.scheduling.schedule import Group

#: Gives what is in a slot for a group.
Read = Callable[[Group], Tensor]
#: Adds the gradient of what a group read to that of the pass.
Put = Callable[[Group, Tensor, Gradients], None]


class ProgramRunner:
    """Runs the groups of one cell in one pass; see `CellRunner` for what it stands in for.

    Args:
        program: the cell's program.
        cell: the cell.
        op_type: the type of its nodes.
        inputs: the pass.
        state: field -> [num_rows + 1, width] what children are read from.
        places: field -> first row of a group -> its rows of what the pass writes.
        numbers: the number of each of the cell's parameters among those of the pass.
    """

    def __init__(
        self,
        program: Program,
        cell: Cell,
        op_type: int,
        inputs: PassInputs,
        state: Mapping[str, Tensor],
        places: Mapping[str, Mapping[int, Tensor]],
        numbers: Sequence[int],
    ) -> None:
        self._program = program
        wanted = [slot for slot in program.slots if slot.needs_grad]
        of_children = [slot.name for slot in wanted if slot.how == "rows"]
        self._placed = of_children if inputs.plan.is_gathered else []
        self._backward = program.backward.without(placed=bool(self._placed))
        self._fields = tuple(cell.fields)
        self._recompute = inputs.recompute
        self._sizes = [(width, inputs.dtype(name)) for name, width in cell.fields.items()]
        self._device = inputs.device
        self._places = [places[name] for name in cell.fields]
        own: list[Tensor] = [*inputs.parameters[op_type], *buffers_of(inputs.modules[op_type])]
        parameters = [tensor.detach() for tensor in own]
        self._given = [
            *own,
            *(value for _, value in parts(inputs.x[op_type])),
            *inputs.edge.values(),
        ]
        self._versions: list[tuple[weakref.ref[Tensor], int]] = []
        self._constants = program.constants(*parameters, *parameters)
        pass_slots = _Slots(inputs, op_type, state)
        self._reads = [pass_slots.read(program.slots[index]) for index in program.reads]
        self._puts = [pass_slots.put(slot) for slot in wanted]
        self._gathered = {slot.name for slot in program.slots if slot.how == "rows"}
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


class _Slots:
    """How the slots of programs are read in a pass, and where their gradients go."""

    def __init__(self, inputs: PassInputs, op_type: int, state: Mapping[str, Tensor]) -> None:
        self._plan = inputs.plan
        self._inputs = inputs
        self._op_type = op_type
        self._state = state
        self._x = dict(parts(inputs.x[op_type]))
        self._arity = inputs.cells[op_type].arity or 0

    def read(self, slot: Slot) -> Read:
        """How a slot is read."""
        plan, name = self._plan, slot.name
        if slot.how == "rows":
            state = self._state[name].detach()
            return self._arrange(slot, lambda g: plan.read_children(state, g))
        if slot.how == "sum":
            state = self._state[name].detach()
            return lambda g: gather_sum(state, plan.group_child_row(g), plan.group_ptr(g))
        if slot.how == "x":
            x = self._x[name].detach().contiguous()  # as it was in the trace
            by_group = plan.split_type(x, self._op_type)
            return lambda g: by_group[g.start]
        if slot.how == "edge":
            column = self._inputs.edge[name].detach().contiguous()
            return self._arrange(slot, lambda g: column[g.edges])
        if slot.how == "previous":
            given = self._inputs.given[name].detach()
            return lambda g: given[g.rows]
        if slot.how == "child_count":
            return self._arrange(slot, lambda g: plan.child_count(plan.group_child_row(g)))
        if slot.how == "ptr":
            return plan.group_ptr
        return self._arrange(slot, plan.group_parent)

    def put(self, slot: Slot) -> Put:
        """Where the gradient of a slot goes."""
        plan, name, trailing = self._plan, slot.name, slot.like.shape[1:]
        if slot.how == "rows":
            if plan.is_gathered:  # it is in its place already
                return lambda g, grad, to: None
            return lambda g, grad, to: to.state[name].put(g, _flat(g, grad, trailing))
        if slot.how == "sum":
            return lambda g, grad, to: to.state[name].put_sum(g, grad)
        if slot.how == "previous":
            return lambda g, grad, to: _add_rows(to.given[name], g, grad)
        if slot.how == "edge":
            column = self._inputs.hollow_edge[name]
            return lambda g, grad, to: put(to.edge, name, column, g.edges, _flat(g, grad, trailing))
        key = self._op_type, name
        x = self._inputs.hollow_x[key]
        return lambda g, grad, to: put(to.x, key, x, g.type_rows, grad)

    def _arrange(self, slot: Slot, read: Read) -> Read:
        """What is read of the edges, side by side where the nodes' arity is fixed."""
        if slot.per != "child":
            return read
        shape = (self._arity, *slot.like.shape[1:])
        if 0 in shape:  # no size could be told from those of nothing
            return lambda g: read(g).view(g.size, *shape)
        open_shape = (-1, *shape)
        return lambda g: read(g).view(open_shape)


def _flat(group: Group, grad: Tensor, trailing: Sequence[int]) -> Tensor:
    """[num_child_edges, ...] a gradient that may have those of a node side by side."""
    shape = (group.edge_stop - group.edge_start, *trailing)
    return grad if grad.shape == shape else grad.reshape(shape)


def _add_rows(total: Tensor, group: Group, grad: Tensor) -> None:
    total[group.rows] += grad


def _number(index: int | None, numbers: Sequence[int]) -> int | None:
    return None if index is None else numbers[index]
