"""Rounds of message passing as a pass over nodes (v, t) that read (u, t - 1), compiled or eager.

A field stays in one tensor per type: it is neither joined nor copied between rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from torch import Tensor

from graphfold.batching.cell import Cell, NodeInput, makes_tables
from graphfold.batching.check_states import check_state
from graphfold.batching.children import Readable
from graphfold.batching.compiler.compiled_cell import CompiledCell
from graphfold.batching.engine.field_sources import FieldSources
from graphfold.batching.engine.pass_inputs import (
    PassInputs,
    as_many,
    cell_dtype,
    select_columns,
)
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import RowIndex, select_rows
from graphfold.batching.kernels.kinds import Kinds
from graphfold.batching.kernels.segment import Kernel
from graphfold.batching.native.linear import NativeLinear
from graphfold.batching.scheduling.unrolled import UnrolledRounds


@dataclass(frozen=True, eq=False)
class RoundsInputs:
    """The inputs of all rounds, with the op types of `UnrolledRounds`.

    Equal rows of a round are one row.
    """

    unrolled: UnrolledRounds
    state: TypedFields  # of earlier passes
    # Field -> op type of the nodes -> [size, width] before the first round.
    initial: Mapping[str, Mapping[int, Tensor]]
    # (op type of the nodes that read, op type of the nodes that are read).
    read_types: Collection[tuple[int, int]]
    absent: Mapping[str, Tensor]  # field -> [1, width] what an absent child reads
    cells: Mapping[int, Cell]
    x: Mapping[int, NodeInput]  # in the order of rows
    edge: Mapping[str, Tensor]  # column -> [num_edges, ...] in the order of the relation
    relations: Mapping[str, Mapping[str, Tensor]]  # see `PassInputs`
    tables: Mapping[int, Mapping[str, Tensor]]  # see `Cell.before_edges`
    kind: RowIndex | None  # [num_edges] the row of a table, in the order of the relation
    shared: Mapping[str, Tensor]
    kernel: Kernel
    readable: Mapping[int, Readable]

    @cached_property
    def written(self) -> frozenset[str]:
        """The fields that cells compute."""
        return frozenset(name for cell in self.cells.values() for name in cell.fields)

    @cached_property
    def given(self) -> dict[str, Tensor]:
        """Field -> its rows, for fields of a single type that this pass does not write."""
        return {
            name: next(iter(parts.values()), self.absent[name][:0])
            for name, parts in self.initial.items()
            if name not in self.written and len(parts) <= 1
        }

    @cached_property
    def as_pass(self) -> PassInputs:
        """All rounds as one pass."""
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
            readable=self.readable,
            relations=self.relations,
            tables=self.tables,
            kind=None if self.kind is None else self.kind.at(plan.edge_index),
        )

    def why_not_compiled(self, compiled: Mapping[int, CompiledCell]) -> str | None:
        """Why these rounds cannot run as programs, which do not copy rows; None if they can.

        A program writes what its cell computes: what it reads must be written in the round before.

        Args:
            compiled: the programs.
        """
        written: dict[int, frozenset[str]] = {}  # op type of the nodes -> fields
        for code, cell in self.cells.items():
            fields = frozenset(cell.fields)
            if written.setdefault(self.unrolled.round_of(code)[1], fields) != fields:
                return f"{type(cell).__name__} has other fields than the cells of other rounds"
        for name, op_type in self._read_by(compiled):
            if name in self.written:
                if name not in written.get(op_type, ()):
                    return f"'{name}' is read of nodes whose cell does not compute it in each round"
            elif self.unrolled.num_rounds > 1:
                return f"several rounds read the field '{name}' of an earlier pass"
            elif op_type not in self.initial[name]:
                return f"'{name}' is read of nodes without it"
        return None

    def _read_by(self, compiled: Mapping[int, CompiledCell]) -> Iterator[tuple[str, int]]:
        """(field, op type of the nodes that have it) for all that programs read."""
        for code, cell in compiled.items():
            op_type = self.unrolled.round_of(code)[1]
            children = [read for reader, read in self.read_types if reader == op_type]
            for by, name in cell.fields_read:
                yield from ((name, t) for t in (children if by == "child_row" else [op_type]))

    def result(self, found: Mapping[tuple[str, int], Tensor]) -> TypedFields:
        """The state after the last round.

        Args:
            found: (field, op type of the nodes) -> [size, width] in the last round.
        """
        unrolled, state = self.unrolled, self.state
        parts = {name: dict(state.parts.get(name, {})) for name in self.absent}
        for (name, op_type), rows in found.items():
            parts[name][op_type] = select(rows, unrolled.spread[op_type])
        return TypedFields(state.plan, parts, self.absent, state.whole_but(self.written))


def make_rounds(
    unrolled: UnrolledRounds,
    read_types: Collection[tuple[int, int]],
    state: TypedFields,
    sources: FieldSources,
    x: Sequence[Mapping[int, NodeInput]],
    relations: Mapping[str, Mapping[str, Tensor]],
    find_kinds: Callable[[], Kinds],
    absent: Mapping[str, Tensor],
    shared: Mapping[str, Tensor],
    kernel: Kernel,
) -> RoundsInputs:
    """All rounds from what each of them is given.

    Args:
        unrolled: the plan.
        read_types: (op type that reads, op type that is read).
        state: of earlier passes, in the rows of one round.
        sources: the cells of each round, and where fields come from.
        x: op type -> what `Cell.before` returned, of each round.
        relations: relation -> column -> [num_edges, ...] in the order of the relation.
        find_kinds: finds the kinds of the edges; called if a cell makes tables of them.
        absent: field -> [width] what an absent child reads; zeros if not here.
        shared: what all cells may read.
        kernel: what reduces over children.
    """
    edge = next(iter(relations.values())) if len(relations) == 1 else {}
    kinds = None
    cells: dict[int, Cell] = {}
    rows: dict[int, NodeInput] = {}
    tables: dict[int, Mapping[str, Tensor]] = {}
    readable: dict[int, Readable] = {}
    for number, (by_type, own) in enumerate(zip(sources.cells_by_round, x, strict=True), start=1):
        can_read = sources.readable(number - 1)
        for op_type, cell in by_type.items():
            if op_type not in state.groups:
                continue
            code = unrolled.code(number, op_type)
            cells[code], readable[code] = cell, can_read[op_type]
            rows[code] = select(own[op_type], unrolled.order[number][op_type])
            if makes_tables(cell):
                kinds = kinds or find_kinds()
                found = cell.before_edges(kinds.columns)
                tables[code] = as_many(found, kinds.num_kinds, cell, "before_edges")
    initial, all_absent = _initial(unrolled, state, sources, x[0], absent)
    return RoundsInputs(
        unrolled=unrolled,
        state=state,
        initial=initial,
        read_types=read_types,
        absent=all_absent,
        cells=cells,
        x=rows,
        edge=edge,
        relations=relations,
        tables=tables,
        kind=None if kinds is None else kinds.kind,
        shared=shared,
        kernel=kernel,
        readable=readable,
    )


def _initial(
    unrolled: UnrolledRounds,
    state: TypedFields,
    sources: FieldSources,
    x: Mapping[int, NodeInput],
    absent: Mapping[str, Tensor],
) -> tuple[dict[str, dict[int, Tensor]], dict[str, Tensor]]:
    """The fields before the first round, and what absent children read of each."""
    found = {
        name: {t: select(rows, unrolled.kept[t]) for t, rows in own.items() if t in state.groups}
        for name, own in state.parts.items()
    }
    all_absent = _absent_rows(state, sources, x, absent)
    found |= {name: {} for name in all_absent if name not in found}
    for op_type, cell in sources.cells_by_round[0].items():
        names = sources.initial(op_type)
        if not names or op_type not in state.groups:
            continue
        with NativeLinear():
            own = cell.initial(select(x[op_type], unrolled.order[0][op_type]))
        check_state(cell, own, unrolled.rows(0, op_type).size)
        for name in names:
            found[name][op_type] = own[name].to(all_absent[name].dtype)
    return found, all_absent


def _absent_rows(
    state: TypedFields,
    sources: FieldSources,
    x: Mapping[int, NodeInput],
    absent: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Field -> [1, width] what an absent child reads: of the fields so far, then of new ones."""
    cells = dict.fromkeys(cell for own in sources.cells_by_round for cell in own.values())
    new = {n: w for cell in cells for n, w in cell.fields.items() if n not in state.absent}
    if not new:
        return dict(state.absent)
    dtype = cell_dtype(cells, x.values())
    zeros = {n: state.plan.row.new_zeros(1, width, dtype=dtype) for n, width in new.items()}
    rows = {n: absent[n].view(1, -1) if n in absent else row for n, row in zeros.items()}
    return {**state.absent, **rows}


@overload
def select(x: Tensor, rows: Tensor | RowIndex | None) -> Tensor: ...
@overload
def select(x: NodeInput, rows: Tensor | RowIndex | None) -> NodeInput: ...
def select(x: NodeInput, rows: Tensor | RowIndex | None) -> NodeInput:
    """Some rows of an input, or of some of its parts; None for all."""
    if rows is None:
        return x
    return select_rows(x, rows) if isinstance(x, Tensor) else select_columns(x, rows)
