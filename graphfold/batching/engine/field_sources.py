"""FieldSources: where each field of a type comes from in a pass, for every engine.

A node reads its own state before it runs (`children.previous`) and the state of its children. A
field of a type comes from the first of these:

1. the cell of the type in this pass: in `Up` and `Down` the nodes that run later read it, in
   `Rounds` the next round does;
2. an earlier pass, `Cell.after` included;
3. in `Rounds`, `initial` of the cell that the type has in the first round;
4. nothing: reading the field raises SchemaError.

Only some of a cell's children may have a field that the cell does not list in `Cell.reads`, as in
slots of several types. Where a child's type lacks such a field, the cell reads zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from graphfold.batching.cell import Cell
from graphfold.batching.children import Readable
from graphfold.batching.scheduling.passes import Pass, Rounds

#: Op type -> the fields that its nodes have.
FieldsByType: TypeAlias = Mapping[int, frozenset[str]]


class FieldSources(NamedTuple):
    """The sources of all fields in one pass; see `find_sources`.

    Args:
        cells_by_round: op type -> cell, of each round; a pass up or down is one round.
        earlier: the fields of earlier passes.
        before: the fields before each round, those of `Cell.initial` included.
        after: the fields after the pass.
        in_rounds: whether it is a pass of rounds.
    """

    cells_by_round: Sequence[Mapping[int, Cell]]
    earlier: FieldsByType
    before: Sequence[FieldsByType]
    after: FieldsByType
    in_rounds: bool

    def initial(self, op_type: int) -> list[str]:
        """The fields of a type that `Cell.initial` gives."""
        cell = self.cells_by_round[0].get(op_type) if self.in_rounds else None
        earlier = self.earlier.get(op_type, frozenset())
        return [] if cell is None else [name for name in cell.fields if name not in earlier]

    def of_children(self, number: int) -> FieldsByType:
        """The fields that children have in a round, counted from 0."""
        return self.before[number] if self.in_rounds else self.after

    def readable(self, number: int = 0) -> dict[int, Readable]:
        """Op type -> the fields that its cell can read in a round, counted from 0."""
        none: frozenset[str] = frozenset()
        previous, children = self.before[number], none.union(*self.of_children(number).values())
        cells = self.cells_by_round[number]
        return {t: Readable(previous.get(t, none), children) for t in cells}


def find_sources(
    item: Pass, cells_by_round: Sequence[Mapping[int, Cell]], earlier: FieldsByType
) -> FieldSources:
    """Finds the sources of the fields in a pass; see `FieldSources` for the arguments."""
    in_rounds = isinstance(item, Rounds)
    state = _with_fields(earlier, cells_by_round[0]) if in_rounds else earlier
    before = []
    for cells in cells_by_round:
        before.append(state)
        state = _with_fields(state, cells)
    return FieldSources(cells_by_round, earlier, before, state, in_rounds)


def _with_fields(state: FieldsByType, cells: Mapping[int, Cell]) -> FieldsByType:
    """The fields after cells have run."""
    none: frozenset[str] = frozenset()
    return {**state, **{t: state.get(t, none).union(cell.fields) for t, cell in cells.items()}}
