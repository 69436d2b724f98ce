"""PassSlots: where the slots of programs are read in a pass, and where their gradients go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from graphfold.batching.engine.gradients import Gradients, put
from graphfold.batching.engine.pass_inputs import PassInputs, parts
from graphfold.batching.engine.programs.program import Slot
from graphfold.batching.kernels.products import Apart, Rows
from graphfold.batching.kernels.segment import gather_sum
from graphfold.batching.scheduling.schedule import Group

#: Gives what is in a slot for a group.
Read = Callable[[Group], Rows]
#: Adds the gradient of what a group read to that of the pass.
Put = Callable[[Group, Tensor, Gradients], None]


class PassSlots:
    """How the slots of one cell's program are read in a pass, and where their gradients go.

    Args:
        inputs: the pass.
        op_type: the type of the cell's nodes.
        state: field -> [num_rows + 1, width] what children are read from.
    """

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
            if slot.is_apart:
                return lambda g: Apart(state, plan.group_child_row(g))
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

    def _arrange(self, slot: Slot, read: Callable[[Group], Tensor]) -> Read:
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
