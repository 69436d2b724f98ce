"""Rounds of message passing as a pass over nodes (v, t) that read (u, t - 1), compiled or eager.

A field stays in one tensor per type: it is neither joined nor copied between rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput, makes_tables
from graphfold.batching.check_states import check_state
from graphfold.batching.engine.pass_inputs import (
    PassInputs,
    as_many,
    cell_dtype,
    select_columns,
)
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import RowIndex, select_rows
from graphfold.batching.kernels.kinds import find_kinds
from graphfold.batching.kernels.segment import Kernel
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.scheduling.unrolled import UnrolledRounds


@dataclass(frozen=True, eq=False)
class RoundsInputs:
    """The inputs of all rounds; op types are those of `UnrolledRounds`.

    Equal rows of a round are one row.
    """

    unrolled: UnrolledRounds
    state: TypedFields  # of earlier passes
    # Field -> op type of the nodes -> [size, width] before the first round.
    initial: Mapping[str, Mapping[int, Tensor]]
    absent: Mapping[str, Tensor]  # field -> [1, width] what an absent child reads
    cells: Mapping[int, Cell]
    x: Mapping[int, NodeInput]  # in the order of rows
    edge: Mapping[str, Tensor]  # column -> [num_edges, ...] in the order of the relation
    tables: Mapping[int, Mapping[str, Tensor]]  # see `Cell.before_edges`
    kind: Tensor | None  # [num_edges] the row of a table, in the order of the relation
    shared: Mapping[str, Tensor]
    kernel: Kernel

    @cached_property
    def written(self) -> frozenset[str]:
        """The fields that cells compute."""
        return frozenset(name for cell in self.cells.values() for name in cell.fields)

    @cached_property
    def given(self) -> dict[str, Tensor]:
        """Field -> its rows, of those of one type at most that this pass does not write."""
        return {
            name: next(iter(parts.values()), self.absent[name][:0])
            for name, parts in self.initial.items()
            if name not in self.written and len(parts) <= 1
        }

    @cached_property
    def as_pass(self) -> PassInputs:
        """The same as one pass."""
        plan = self.unrolled.plan
        return PassInputs(
            plan=plan,
            cells=self.cells,
            x=self.x,
            given=self.given,
            absent={},
            edge={
                name: column.index_select(0, plan.edge)
                for name, column in self.edge.items()
                if column.is_floating_point()
            },
            shared=self.shared,
            kernel=self.kernel,
            tables=self.tables,
            kind=None if self.kind is None else self.kind.index_select(0, plan.edge),
        )

    def why_not_compiled(self) -> str | None:
        """Why native code cannot run these rounds, whatever their cells are; None if it can."""
        with_cell = {self.unrolled.round_of(code)[1] for code in self.cells}
        for name, parts in self.initial.items():
            if name in self.written and not parts.keys() <= with_cell:
                return f"nodes without a cell have '{name}', which others compute in rounds"
            is_read = any(name in cell.read_fields for cell in self.cells.values())
            if is_read and name not in self.written and self.unrolled.num_rounds > 1:
                return f"several rounds read the field '{name}' of an earlier pass"
            if is_read and name not in self.written and len(parts) > 1:
                return f"nodes of several types have the field '{name}' of an earlier pass"
        return None

    def result(self, found: Mapping[tuple[str, int], Tensor]) -> TypedFields:
        """The state after the last round.

        Args:
            found: (field, op type of the nodes) -> [size, width] in the last round.
        """
        unrolled, state = self.unrolled, self.state
        parts = {name: dict(state.parts.get(name, {})) for name in self.absent}
        for (name, op_type), rows in found.items():
            parts[name][op_type] = select(rows, unrolled.spread[op_type])
        return TypedFields(state.plan, parts, self.absent)


def make_rounds(
    unrolled: UnrolledRounds,
    state: TypedFields,
    cells_by_round: Sequence[Mapping[int, Cell]],
    x: Sequence[Mapping[int, NodeInput]],
    edge: Mapping[str, Tensor],
    num_edges: int,
    absent: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    kernel: Kernel,
) -> RoundsInputs:
    """All rounds from what each of them is given.

    Fields that no earlier pass has computed begin as `Cell.initial` says.

    Args:
        unrolled: the plan.
        state: of earlier passes, in the rows of one round.
        cells_by_round: op type -> cell, of each round; a type without one keeps its state.
        x: op type -> what `Cell.before` returned, of each round.
        edge: column -> [num_edges, ...] in the order of the relation.
        num_edges: of the relation.
        absent: field -> [width] what an absent child reads; zeros if not here.
        shared: what all cells may read.
        kernel: what reduces over children.
    """
    kinds = None
    cells: dict[int, Cell] = {}
    rows: dict[int, NodeInput] = {}
    tables: dict[int, Mapping[str, Tensor]] = {}
    for number, (by_type, own) in enumerate(zip(cells_by_round, x, strict=True), start=1):
        for op_type, cell in by_type.items():
            if op_type not in state.groups:
                continue
            code = unrolled.code(number, op_type)
            cells[code] = cell
            rows[code] = select(own[op_type], unrolled.order[number][op_type])
            if makes_tables(cell):
                kinds = kinds or find_kinds(edge, num_edges, state.plan.row.device)
                found = cell.before_edges(kinds.columns)
                tables[code] = as_many(found, kinds.num_kinds, cell, "before_edges")
    initial, all_absent = _initial(unrolled, state, cells_by_round[0], x[0], absent)
    return RoundsInputs(
        unrolled=unrolled,
        state=state,
        initial=initial,
        absent=all_absent,
        cells=cells,
        x=rows,
        edge=edge,
        tables=tables,
        kind=None if kinds is None else kinds.kind,
        shared=shared,
        kernel=kernel,
    )


def _initial(
    unrolled: UnrolledRounds,
    state: TypedFields,
    cells: Mapping[int, Cell],
    x: Mapping[int, NodeInput],
    absent: Mapping[str, Tensor],
) -> tuple[dict[str, dict[int, Tensor]], dict[str, Tensor]]:
    """The fields before the first round, and what absent children read of each."""
    found = {
        name: {t: select(rows, unrolled.kept[t]) for t, rows in own.items() if t in state.groups}
        for name, own in state.parts.items()
    }
    lacking = {n: w for cell in cells.values() for n, w in cell.fields.items() if n not in found}
    if not lacking:
        return found, dict(state.absent)
    dtype = cell_dtype(cells.values(), x.values())
    zero = {n: state.plan.row.new_zeros(1, w, dtype=dtype) for n, w in lacking.items()}
    new = {n: absent[n].view(1, -1) if n in absent else row for n, row in zero.items()}
    found |= {name: {} for name in lacking}
    for op_type in state.groups.keys() & cells.keys():
        cell, size = cells[op_type], unrolled.rows(0, op_type).size
        with NativeLinear():
            own = cell.initial(select(x[op_type], unrolled.order[0][op_type]))
        check_state(cell, own, size)
        for name in lacking.keys() & cell.fields.keys():
            found[name][op_type] = own[name].to(new[name].dtype)
    return found, {**state.absent, **new}


@overload
def select(x: Tensor, rows: Tensor | RowIndex | None) -> Tensor: ...
@overload
def select(x: NodeInput, rows: Tensor | RowIndex | None) -> NodeInput: ...
def select(x: NodeInput, rows: Tensor | RowIndex | None) -> NodeInput:
    """Some rows of an input, of its parts those that are asked for; None for all."""
    if rows is None:
        return x
    return select_rows(x, rows) if isinstance(x, Tensor) else select_columns(x, rows)
