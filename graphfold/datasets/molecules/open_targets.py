"""OpenTargets: target columns by a pattern, which the files make a list of names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from graphfold.datasets.files.table_target import MISSING_CELLS, TableTarget
from graphfold.datasets.files.tables import Table
from graphfold.datasets.molecules.molecule_columns import MoleculeColumns
from graphfold.errors import ConfigError, DataError

#: All columns that have no other use.
ALL = "all"


@dataclass(frozen=True)
class OpenTargets:
    """Targets whose names are still to be found.

    Args:
        pattern: `ALL`, or a name with `*` for any text.
        ignored: names and patterns of columns that are none.
    """

    pattern: str
    ignored: tuple[str, ...]

    def find(
        self, tables: Iterable[Table], columns: MoleculeColumns, named: Collection[str]
    ) -> list[str]:
        """The names of the columns of the first table that are targets, in its order.

        Args:
            tables: all that are read.
            columns: the columns with another use, which are no targets.
            named: targets that may be text, since their classes have names.

        Raises:
            DataError: if the table lacks an ignored column, none is left, or one holds no number.
        """
        tables = list(tables)
        first = tables[0]
        first.find([name for name in self.ignored if "*" not in name], "data.ignore_columns")
        used = {first.smiles_column or columns.smiles, first.name_column, *columns.names}
        found = [
            name
            for name in first.columns
            if (self.pattern == ALL or _fits(self.pattern, name))
            and name not in used
            and not any(_fits(pattern, name) for pattern in self.ignored)
        ]
        if not found:
            raise DataError(
                f"{first.path}: no column is left for target_columns={self.pattern} among "
                f"{', '.join(map(repr, first.columns))}. Set data.target_columns.",
                path=str(first.path),
            )
        strange = _without_numbers(tables, [name for name in found if name not in named])
        if strange:
            names = ", ".join(f"'{name}'" for name in strange)
            raise DataError(
                f"{first.path}: {names}: no cell there is a number, so target_columns="
                f"{self.pattern} cannot take it for a target. Set data.ignore_columns=[{names}], "
                "or list the targets in data.target_columns.",
                path=str(first.path),
                columns=strange,
            )
        return found


def open_targets(names: Sequence[str] | str, ignored: tuple[str, ...]) -> OpenTargets | None:
    """The pattern that `target_columns` is; None if it lists names.

    Raises:
        ConfigError: if a name is listed and ignored.
    """
    if isinstance(names, str) and (names == ALL or "*" in names):
        return OpenTargets(names, ignored)
    listed = (names,) if isinstance(names, str) else names
    for name in listed:
        if any(_fits(pattern, name) for pattern in ignored):
            raise ConfigError(
                f"the column '{name}' is in target_columns and in ignore_columns. Take it out of "
                "one of them."
            )
    return None


def _fits(pattern: str, name: str) -> bool:
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None


def _without_numbers(tables: Sequence[Table], names: Sequence[str]) -> list[str]:
    """The columns without a single number, or bound such as `>5`, in all tables."""
    waiting = list(names)
    for table in tables:
        places = dict(zip(waiting, table.find(waiting, "data.target_columns"), strict=True))
        for row in table.rows():
            for name in list(places):
                cell = row.cells[places[name]].strip()
                if cell not in MISSING_CELLS and TableTarget.is_number(cell.lstrip("<>=")):
                    del places[name]
            if not places:
                return []
        waiting = list(places)
    return waiting
