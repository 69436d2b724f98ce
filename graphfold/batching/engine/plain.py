"""The plain engine: the same groups under ordinary autograd, joined by `torch.cat`.

It runs whatever autograd runs, double backward included, at the price of copying the state once
per level.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphfold.batching.cell import Cell
from graphfold.batching.children import Children, StateReader
from graphfold.batching.engine.pass_inputs import PassInputs, check_state, map_parts
from graphfold.batching.kernels.segment import segment_sum
from graphfold.batching.scheduling.schedule import Group, PassSchedule


def run_plain(inputs: PassInputs) -> dict[str, Tensor]:
    """Runs one Up or Down pass; arguments and result as in `run_fast`."""
    state = {name: _absent_row(inputs, name, width) for name, width in inputs.fields.items()}
    for group in inputs.plan.groups:
        new = _run_group(inputs, group, {**inputs.given, **state})
        state = {name: torch.cat([rows, new[name]]) for name, rows in state.items()}
    return {**inputs.given, **state}


class PlainReader(StateReader):
    """Reads rows of state under autograd."""

    def __init__(
        self,
        plan: PassSchedule,
        state: Mapping[str, Tensor],
        given: Mapping[str, Tensor],
        group: Group,
    ) -> None:
        self._plan = plan
        self._state = state
        self._given = given
        self._own = group.rows
        self._index = plan.group_child_row(group)
        self.parent = plan.group_parent(group)
        self.ptr = plan.group_ptr(group)

    def rows(self, field: str) -> Tensor:
        return self._state[field].index_select(0, self._index)

    def child_count(self) -> Tensor:
        return self._plan.child_count(self._index)

    def sum(self, field: str, weight: Tensor | None) -> Tensor:
        rows = self.rows(field)
        rows = rows if weight is None else rows * weight.unsqueeze(1)
        return segment_sum(rows, self.ptr, self.parent)

    def previous(self, field: str) -> Tensor:
        return self._given[field][self._own]


def _run_group(inputs: PassInputs, group: Group, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """[group_size, width] every field that the pass writes, for one group."""
    cell = inputs.cells.get(group.op_type)
    new = {name: inputs.given[name][group.rows] for name in inputs.carried[group.op_type]}
    if cell is not None:
        new |= _call(cell, inputs, group, state)
    return {name: _rows(inputs, new, name, width, group) for name, width in inputs.fields.items()}


def _call(
    cell: Cell, inputs: PassInputs, group: Group, state: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    children = Children(
        PlainReader(inputs.plan, state, inputs.given, group),
        group.size,
        cell.arity,
        {name: column[group.edges] for name, column in inputs.edge.items()},
        inputs.shared,
        inputs.kernel,
    )
    x = map_parts(inputs.x[group.op_type], lambda tensor: tensor[group.type_rows])
    new: Mapping[str, Tensor] = cell(x, children)
    check_state(cell, new, group)
    return new


def _rows(
    inputs: PassInputs, state: Mapping[str, Tensor], name: str, width: int, group: Group
) -> Tensor:
    """The field's rows in its own dtype; zeros where the type lacks the field."""
    dtype = inputs.dtype(name)
    if name in state:
        return state[name].to(dtype)
    return torch.zeros(group.size, width, dtype=dtype, device=inputs.device)


def _absent_row(inputs: PassInputs, name: str, width: int) -> Tensor:
    if name in inputs.absent:
        return inputs.absent[name].view(1, width)
    return torch.zeros(1, width, dtype=inputs.dtype(name), device=inputs.device)
