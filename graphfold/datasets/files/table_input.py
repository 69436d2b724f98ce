"""TableInput: one column of a table that is an input of models, and how its cells are read."""

from __future__ import annotations

from dataclasses import dataclass

from graphfold.dag import Column
from graphfold.datasets.files.table_target import MISSING_CELLS, TableTarget
from graphfold.errors import RecordError, shortened


@dataclass(frozen=True)
class TableInput:
    """A column of numbers.

    Args:
        name: the name of the column.
        may_be_missing: whether a cell may be empty; models then get the mean of the training part.
    """

    name: str
    may_be_missing: bool = False

    @property
    def column(self) -> Column:
        """The column of the schema."""
        return Column(self.name, "float32")

    def parse(self, cell: str) -> float | None:
        """The value of a cell; None if it is missing.

        Raises:
            RecordError: if it is no finite number, or missing where it must not be.
        """
        cell = cell.strip()
        if cell in MISSING_CELLS:
            if self.may_be_missing:
                return None
            raise RecordError(
                f"the input '{self.name}' is missing",
                "Fill the cell; or set data.fill_missing=true for the mean of the training part, "
                "or data.on_error=skip.",
            )
        value = TableTarget.number(cell)
        if value is None:
            raise RecordError(
                f"the input '{self.name}' is '{shortened(cell)}', which is not a finite number",
                "Correct the cell, or set data.on_error=skip.",
            )
        return value
