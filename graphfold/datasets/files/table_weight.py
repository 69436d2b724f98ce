"""TableWeight: the column of a table that says how many records each record counts for."""

from __future__ import annotations

from dataclasses import dataclass

from graphfold.dag import Column
from graphfold.dag.schema import RECORD_WEIGHT
from graphfold.datasets.files.table_target import TableTarget
from graphfold.errors import RecordError, shortened


@dataclass(frozen=True)
class TableWeight:
    """A column of weights: numbers from 0 on.

    Args:
        name: the name of the column.
    """

    name: str

    @property
    def features(self) -> tuple[Column, ...]:
        """The column of the schema."""
        return (Column(RECORD_WEIGHT, "float32", role="weight"),)

    def values(self, cell: str) -> dict[str, float | int | None]:
        """The weight.

        Raises:
            RecordError: if the cell is no number from 0 on.
        """
        value = TableTarget.number(cell)
        if value is None or value < 0:
            raise RecordError(
                f"weight '{self.name}' is '{shortened(cell)}', which is no number from 0 on",
                "Give the record a weight, or set data.on_error=skip.",
            )
        return {RECORD_WEIGHT: value}
