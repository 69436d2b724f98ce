"""ListTarget: one column of a table whose cells have a value for each atom, or each bond."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from graphfold.dag import Column
from graphfold.datasets.files.table_target import MISSING_CELLS, TableTarget


@dataclass(frozen=True)
class ListTarget:
    """A target of atoms or bonds: a cell is a JSON list, such as `[0.1, null, -0.4]`.

    The values are in the order of RDKit: that of the atoms in the SMILES, or of the bonds in it,
    those that close rings last; explicit hydrogens, where they are atoms of the graph, and their
    bonds come after all others. A null, and any cell that is missing in a table, was not measured.

    Args:
        target: the name, task, unit and classes; how one value is read.
        of: what has the values.
    """

    target: TableTarget
    of: Literal["atom", "bond"] = "atom"

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.target.name

    @property
    def column(self) -> Column:
        """The column of the schema."""
        return self.target.column

    def values(self, cell: str, number: int) -> list[float | int | None]:
        """[number] the values of so many atoms or bonds; None where nothing was measured.

        Raises:
            RecordError: if the cell is no list of so many values, or one of them cannot be read.
        """
        cell = cell.strip()
        if cell in MISSING_CELLS:
            return [None] * number
        try:
            values = json.loads(cell)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list) or any(isinstance(v, list | dict | bool) for v in values):
            raise self.target.refuse(cell, "is no list of values", "Write it as [0.1, null, -0.4]")
        if len(values) != number:
            fault = f"has {len(values)} values for {number} {self.of}s"
            remedy = f"Give a value or null for each {self.of}, in order"
            raise self.target.refuse(cell, fault, remedy)
        return [self.target.parse("" if value is None else str(value)) for value in values]
