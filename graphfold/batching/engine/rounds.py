"""Rounds of message passing: every node reads its neighbours' state of the round before.

One call of a cell covers all nodes of a type, under ordinary autograd: so rounds can be
differentiated twice, and cells may normalise over the batch. The state stays in one tensor per type
and field, as the cells return it; it is neither joined nor copied between rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput, State
from graphfold.batching.children import Children
from graphfold.batching.engine.links import Links, RoundReader
from graphfold.batching.engine.pass_inputs import cell_dtype, check_state
from graphfold.batching.engine.round_inputs import RoundInputs
from graphfold.batching.engine.selected import Selected
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import select_rows
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.scheduling.schedule import Group, PassSchedule
from graphfold.batching.scheduling.unrolled import UnrolledRounds


class RoundsRun:
    """The rounds of one pass, one after another.

    Args:
        inputs: what all rounds have in common.
        given: the state of earlier passes, in the rows of the plan.
    """

    def __init__(self, inputs: RoundInputs, given: Mapping[str, Tensor]) -> None:
        self.inputs, self.plan = inputs, inputs.plan
        self.state = (
            given if isinstance(given, TypedFields) else TypedFields.split(self.plan, given)
        )
        self.begun: frozenset[str] = frozenset()  # the fields that `begin` added
        self._links: dict[int, Links] = {}

    def begin(
        self,
        cells: Mapping[int, Cell],
        x: Mapping[int, NodeInput],
        unrolled: UnrolledRounds | None = None,
    ) -> None:
        """Adds `Cell.initial` for the fields of cells that no earlier pass has computed.

        Args:
            cells: op type -> cell.
            x: op type -> what `Cell.before` returned.
            unrolled: if given, equal rows before the first round are computed once; `spread` gives
                each its own.
        """
        lacking = {n: w for n, w in widths(cells).items() if n not in self.state}
        if not lacking:
            return
        self.begun = frozenset(lacking)
        parts = {name: dict(own) for name, own in self.state.parts.items()}
        absent = {**self.state.absent, **self._absent(lacking, cells, x)}
        parts |= {name: {} for name in lacking}
        for group in self.plan.groups:
            if group.op_type in cells:
                cell = cells[group.op_type]
                kept = None if unrolled is None else unrolled.kept(0, group)
                with NativeLinear():
                    state = cell.initial(x_rows(x[group.op_type], self.plan, group.op_type, kept))
                check_state(cell, state, group.size if kept is None else len(kept))
                for name in lacking.keys() & cell.fields.keys():
                    parts[name][group.op_type] = state[name].to(absent[name].dtype)
        self.state = TypedFields(self.plan, parts, absent)

    def spread(self, unrolled: UnrolledRounds) -> None:
        """Gives equal rows before the first round a row each."""
        parts = {name: dict(own) for name, own in self.state.parts.items()}
        for name in self.begun:
            for op_type, rows in parts[name].items():
                index = unrolled.spread(0, self.state.groups[op_type])
                parts[name][op_type] = rows if index is None else select_rows(rows, index)
        self.state = TypedFields(self.plan, parts, self.state.absent)

    def step(self, cells: Mapping[int, Cell], x: Mapping[int, NodeInput]) -> TypedFields:
        """Runs the next round.

        Args:
            cells: op type -> cell; a type without one keeps its state.
            x: op type -> what `Cell.before` returned.
        """
        old = self.state
        parts: dict[str, dict[int, Tensor]] = {name: {} for name in old}
        for group in self.plan.groups:
            cell, op_type = cells.get(group.op_type), group.op_type
            new = {} if cell is None else self._call(cell, group, x[op_type])
            for name in parts:
                if name in new:
                    parts[name][op_type] = new[name].to(old.dtype(name))
                elif op_type in old.parts[name]:
                    parts[name][op_type] = old.part(name, op_type)
        self.state = TypedFields(self.plan, parts, old.absent)
        return self.state

    def _call(self, cell: Cell, group: Group, x: NodeInput) -> State:
        if group.op_type not in self._links:
            self._links[group.op_type] = Links(group, self.inputs)
        links = self._links[group.op_type]
        children = Children(
            RoundReader(links, self.state),
            group.size,
            cell.arity,
            links.edge(cell),
            self.inputs.shared,
            self.inputs.kernel,
        )
        with NativeLinear() if self.inputs.fuse else nullcontext():
            new: State = cell(x_rows(x, self.plan, group.op_type), children)
        check_state(cell, new, group.size)
        return {name: new[name] for name in cell.fields}

    def _absent(
        self, fields: Mapping[str, int], cells: Mapping[int, Cell], x: Mapping[int, NodeInput]
    ) -> dict[str, Tensor]:
        """[1, width] what an absent child reads, in the dtype that new fields get."""
        parameters = (p for cell in cells.values() for p in cell.parameters())
        dtype, device = cell_dtype(parameters, x.values()), self.plan.row.device
        return {
            name: self.inputs.absent[name].view(1, width)
            if name in self.inputs.absent
            else torch.zeros(1, width, dtype=dtype, device=device)
            for name, width in fields.items()
        }


def x_rows(x: NodeInput, plan: PassSchedule, op_type: int, kept: Tensor | None = None) -> NodeInput:
    """What `Cell.before` returned, in the order of a type's rows, or of those that are kept."""
    order = plan.type_order[op_type]
    if kept is not None:
        order = kept if order is None else order.index_select(0, kept)
    return x if order is None else select(x, order)


def select(x: NodeInput, rows: Tensor) -> NodeInput:
    """Some rows of an input, of its parts those that are asked for."""
    return select_rows(x, rows) if isinstance(x, Tensor) else Selected(x, rows)


def widths(cells: Mapping[int, Cell]) -> dict[str, int]:
    """The fields of all cells, name -> width."""
    return {name: width for cell in cells.values() for name, width in cell.fields.items()}
