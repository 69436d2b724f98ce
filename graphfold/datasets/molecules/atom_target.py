"""AtomTarget: one column of a table whose cells have a value for each atom."""

from __future__ import annotations

import json
from dataclasses import dataclass

from graphfold.dag import Column
from graphfold.datasets.files.table_target import MISSING_CELLS, TableTarget


@dataclass(frozen=True)
class AtomTarget:
    """A target of atoms: a cell is a JSON list, such as `[0.1, null, -0.4]`.

    The values are in the order of the atoms of the SMILES; explicit hydrogens, where they are atoms
    of the graph, come after them. A null, and any cell that is missing in a table, was not
    measured.

    Args:
        target: the name, task, unit and classes; how one value is read.
    """

    target: TableTarget

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.target.name

    @property
    def column(self) -> Column:
        """The column of the schema."""
        return self.target.column

    def values(self, cell: str, num_atoms: int) -> list[float | int | None]:
        """[num_atoms] the values; None where nothing was measured.

        Raises:
            RecordError: if the cell is no list of so many values, or one of them cannot be read.
        """
        cell = cell.strip()
        if cell in MISSING_CELLS:
            return [None] * num_atoms
        try:
            values = json.loads(cell)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list) or any(isinstance(v, list | dict | bool) for v in values):
            raise self.target.refuse(cell, "is no list of values", "Write it as [0.1, null, -0.4]")
        if len(values) != num_atoms:
            fault = f"has {len(values)} values for {num_atoms} atoms"
            raise self.target.refuse(cell, fault, "Give a value or null for each atom, in order")
        return [self.target.parse("" if value is None else str(value)) for value in values]
