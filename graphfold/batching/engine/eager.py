"""The eager way to run a pass: the cells' own code, group by group, under ordinary autograd.

It runs whatever autograd runs, double backward included. Each group's output stays a tensor of its
own until all are joined, and whatever groups read parts of is cut up once for all of them; so time
and memory grow with the nodes and edges, however deep the graphs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput
from graphfold.batching.children import Children, StateReader
from graphfold.batching.engine.group_states import GroupStates
from graphfold.batching.engine.pass_inputs import PassInputs, check_state, parts
from graphfold.batching.engine.refusals import refuse_group_statistics
from graphfold.batching.engine.selected import Selected
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.scheduling.schedule import Group


def run_eager(inputs: PassInputs) -> dict[str, Tensor]:
    """Runs one Up or Down pass; arguments and result as in `run_fast`.

    Raises:
        EngineError: if a cell takes or keeps statistics over a group.
        ShapeError: if a cell returns something else than its fields.
    """
    states, read = GroupStates(inputs), GroupInputs(inputs)
    seen: set[int] = set()
    for group in inputs.plan.groups:
        cell = inputs.cells.get(group.op_type)
        new: Mapping[str, Tensor] = {}
        if cell is not None:
            is_first = group.op_type not in seen  # what a cell does there it does in every group
            with refuse_group_statistics(cell) if is_first else nullcontext():
                new = _call(cell, inputs, group, states, read)
            seen.add(group.op_type)
        states.add(group, new)
    return {**inputs.given, **states.join()}


def _call(
    cell: Cell, inputs: PassInputs, group: Group, states: GroupStates, read: GroupInputs
) -> Mapping[str, Tensor]:
    children = Children(
        EagerReader(inputs, states, group),
        group.size,
        cell.arity,
        read.edge(group),
        inputs.shared,
        inputs.kernel,
    )
    new: Mapping[str, Tensor] = cell(read.x(group), children)
    check_state(cell, new, group.size)
    return {name: new[name] for name in cell.fields}


class EagerReader(StateReader):
    """Reads the children of one group.

    Args:
        inputs: the pass.
        states: what the groups before have computed.
        group: the group that reads.
    """

    def __init__(self, inputs: PassInputs, states: GroupStates, group: Group) -> None:
        self._plan = inputs.plan
        self._states = states
        self._group = group
        self.parent = inputs.plan.group_parent(group)
        self.ptr = inputs.plan.group_ptr(group)

    def rows(self, field: str) -> Tensor:
        return self._states.children(field, self._group)

    def child_count(self) -> Tensor:
        return self._plan.child_count(self._plan.group_child_row(self._group))

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        rows = self.rows(field)
        rows = rows if weight is None else rows * weight.unsqueeze(1)
        return segment_sum(rows, self.ptr, self.parent)

    def previous(self, field: str) -> Tensor:
        return self._states.previous(field, self._group)


class GroupInputs:
    """What groups are given besides state, cut up for all of them at once.

    Args:
        inputs: the pass.
    """

    def __init__(self, inputs: PassInputs) -> None:
        plan = inputs.plan
        self._tables, self._kind = inputs.tables, inputs.kind
        self._edge = {name: plan.split_edges(column) for name, column in inputs.edge.items()}
        self._x = {
            op_type: {name: plan.split_type(part, op_type) for name, part in parts(value)}
            for op_type, value in inputs.x.items()
        }
        self._is_one = {t: isinstance(value, Tensor) for t, value in inputs.x.items()}

    def x(self, group: Group) -> NodeInput:
        """The rows of a group of what `Cell.before` returned."""
        own = {name: rows[group.start] for name, rows in self._x[group.op_type].items()}
        return own[""] if self._is_one[group.op_type] else own

    def edge(self, group: Group) -> Mapping[str, Tensor]:
        """The columns of a group's edges, or what its cell has made of them."""
        if group.op_type in self._tables and self._kind is not None:
            return Selected(self._tables[group.op_type], self._kind[group.edges])
        return {name: column[group.start] for name, column in self._edge.items()}
