"""The columns of a table of records, such as molecules, and the values of their cells.

`RecordColumns` reads the cells of a row, `ListTarget` a cell with a value for each atom or bond;
`find_targets` lists the columns that a pattern fits.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from graphfold.dag import Column, NodeType
from graphfold.datasets.adapter import Record
from graphfold.datasets.files.table_columns import (
    MISSING_CELLS,
    TableTarget,
    TableWeight,
    inferred_classes,
)
from graphfold.datasets.files.tables import PART, StructureRow, Table, read_part
from graphfold.errors import ConfigError, DataError, LeftOut, did_you_mean

#: A bond with a target, as a node: its inputs are its two atoms. It has no features and no cell;
#: `BondReadout` reads its atoms.
BOND_ENDS = NodeType("bond_ends", 2, inputs=("atom",))


@dataclass(frozen=True)
class ListTarget:
    """A target of atoms or bonds: a cell is a JSON list, such as `[0.1, null, -0.4]`.

    The values are in the order of RDKit: that of the atoms in the SMILES, or of the bonds in it,
    those that close rings last; of a structure in an SDF file, that of its atoms and bonds.
    Hydrogens that are atoms of the graph though they are not written out, and their bonds, come
    after all others. A null, and any cell that is missing in a table, was not measured.

    Args:
        target: the name, task, unit and classes; it reads one value.
        of: the owner of the values.
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
        """[number] the values of the atoms or bonds; None where nothing was measured.

        Raises:
            RecordError: if the cell is no list of `number` values, or one of them cannot be read.
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


class RecordRow(NamedTuple):
    """The cells of one row of a table that are read.

    Args:
        text: the cell of the record: a SMILES, or the text of a tree.
        targets: the cells of the targets, in their order, then the weight, if any; empty where no
            targets are read.
        fault: a fault in the form of the row; None without one.
        part: the cell of the split column; None where none is read.
        list_targets: the cells of the targets of atoms or bonds, in their order.
        molecule: a molecule of RDKit in place of a SMILES; `text` is its SMILES.
    """

    text: str
    targets: tuple[str, ...] = ()
    fault: str | None = None
    part: str | None = None
    list_targets: tuple[str, ...] = ()
    molecule: Any = None


@dataclass(frozen=True)
class RecordColumns:
    """The columns of a table that are read.

    Args:
        text: the name of the column of SMILES or of other texts; some kinds of tables (SDF) have a
            fixed one.
        targets: targets of whole records.
        list_targets: targets of the atoms of molecules, or of their bonds.
        weight: how many records each record counts for.
        split: the name of the column with train, val or test; None for none.
        option: the option that names the text column, for messages.

    Raises:
        ConfigError: if a column is named twice.
    """

    text: str
    targets: tuple[TableTarget, ...] = ()
    list_targets: tuple[ListTarget, ...] = ()
    weight: TableWeight | None = None
    split: str | None = None
    option: str = "smiles_column"

    def __post_init__(self) -> None:
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise ConfigError(
                f"the column {', '.join(map(repr, repeated))} is asked for more than once. Name "
                f"each column once in {self.option}, target_columns, atom_target_columns, "
                "bond_target_columns and split_column.",
                columns=repeated,
            )

    def without_targets(self) -> RecordColumns:
        """The columns that prediction reads."""
        return replace(self, targets=(), list_targets=(), weight=None, split=None)

    @cached_property
    def names(self) -> list[str]:
        """The names of all columns."""
        others = (*self.measured, *self.list_targets)
        return [self.text, *_names(others), *([] if self.split is None else [self.split])]

    @cached_property
    def measured(self) -> tuple[TableTarget | TableWeight, ...]:
        """The targets and the weight, in the order of the cells `RecordRow.targets`."""
        return self.targets if self.weight is None else (*self.targets, self.weight)

    @property
    def measures(self) -> str | None:
        """Owner of the values of `list_targets`, "atom" or "bond"; None without such targets."""
        return self.list_targets[0].of if self.list_targets else None

    @property
    def notes(self) -> tuple[Column, ...]:
        """The features of graphs that no model reads: bounds and weights of targets, the part."""
        bounds = [column for item in self.measured for column in item.features]
        return (*bounds, *(() if self.split is None else (Column(PART, "string"),)))

    def records(self, table: Table) -> Iterator[Record]:
        """One record for each row; `content` is a `RecordRow`.

        Raises:
            DataError: if the table lacks a column.
        """
        (text,) = table.find([table.smiles_column or self.text], f"data.{self.option}")
        targets = table.find(_names(self.targets), "data.target_columns")
        if self.weight is not None:
            targets += table.find([self.weight.name], "data.weight_column")
        list_targets = table.find(_names(self.list_targets), f"data.{self.measures}_target_columns")
        part = None
        if self.split is not None:
            (part,) = table.find([self.split], "data.split_column")
        for item in table.rows():
            line, cells, fault = item
            row = RecordRow(
                cells[text],
                tuple(cells[index] for index in targets),
                fault,
                None if part is None else cells[part],
                tuple(cells[index] for index in list_targets),
                item.molecule if isinstance(item, StructureRow) else None,
            )
            yield Record(line, row, columns=table.columns, cells=cells)

    def class_names(self, tables: Iterable[Table]) -> dict[str, list[str]]:
        """The classes of the targets with text in the cells of all tables.

        Returns:
            Target -> its classes, see `inferred_classes`; no target whose classes are configured.

        Raises:
            DataError: if two of them differ in case alone.
        """
        cells: dict[str, set[str]] = {
            target.name: set()
            for target in self.targets
            if target.task == "classification"
            and not target.class_names
            and target.num_classes is None
        }
        for table in tables if cells else ():
            columns = dict(zip(cells, table.find([*cells], "data.target_columns"), strict=True))
            for row in table.rows():
                for name, column in list(columns.items()):
                    cell = row.cells[column].strip()
                    if TableTarget.is_number(cell):
                        del columns[name], cells[name]
                    elif cell not in MISSING_CELLS:
                        cells[name].add(cell)
                if not columns:
                    break
        classes = {name: inferred_classes(texts, name) for name, texts in cells.items()}
        return {name: names for name, names in classes.items() if len(names) > 1}

    def values(self, row: RecordRow) -> dict[str, float | int | str | None]:
        """The columns of targets and weight, and the part.

        Raises:
            RecordError: if a cell cannot be read.
            LeftOut: if no target is measured.
        """
        pairs = zip(self.measured, row.targets, strict=True)
        values: dict[str, float | int | str | None] = {}
        for item, cell in pairs:
            values |= item.values(cell)
        if self.targets and all(values[target.name] is None for target in self.targets):
            raise LeftOut(f"no target is measured ({_quoted(_names(self.targets))})")
        if row.part is not None:
            values[PART] = read_part(row.part, str(self.split))
        return values

    def list_values(self, row: RecordRow, number: int) -> dict[str, list[Any]]:
        """Target -> [number] its values for the atoms or bonds.

        Raises:
            RecordError: if a cell cannot be read.
            LeftOut: if none of them is measured.
        """
        pairs = zip(self.list_targets, row.list_targets, strict=True)
        values = {item.name: item.values(cell, number) for item, cell in pairs}
        if values and all(value is None for column in values.values() for value in column):
            raise LeftOut(f"no {self.measures} is measured ({_quoted(values)})")
        return values

    def find_item(self, names: Sequence[str]) -> str:
        """The column of molecules in a table in Python; raises DataError if the table lacks it."""
        if self.text not in names:
            raise DataError(
                f"the table has no column '{self.text}' among {_quoted(names[:30])}."
                f"{did_you_mean(self.text, names)} Rename the column, or load the model with "
                f"{self.option}='...'.",
                columns=[self.text],
            )
        return self.text


def _names(items: Sequence[TableTarget | TableWeight | ListTarget]) -> list[str]:
    return [item.name for item in items]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


#: The pattern for all columns without another use.
ALL = "all"

#: Names that pandas gives the index of a DataFrame in a file, and a nameless column that it reads.
_INDEX = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")


def is_open(names: Sequence[str] | str) -> bool:
    """True for targets that are a pattern: `ALL`, or a name with `*` for any text."""
    return isinstance(names, str) and (names == ALL or "*" in names)


def find_targets(pattern: str, table: Table, columns: RecordColumns) -> list[str]:
    """The columns of a table that fit a pattern and have no other use, in order.

    `ALL` passes over the index of a DataFrame, with a warning.

    Raises:
        DataError: if no column fits.
    """
    wildcard = "*" if pattern == ALL else pattern
    used = {table.smiles_column or columns.text, table.name_column, *columns.names}
    fits = re.compile(".*".join(map(re.escape, wildcard.split("*"))), re.DOTALL).fullmatch
    names = [name for name in table.columns if fits(name) and name not in used]
    if not wildcard.strip("*"):
        names = _without_index(names, table)
    if not names:
        raise DataError.in_file(
            table.path,
            f"no column is left for target_columns={pattern} among "
            f"{', '.join(map(repr, table.columns))}. Set data.target_columns.",
        )
    return names


def _without_index(names: Sequence[str], table: Table) -> list[str]:
    """Removes the index of a DataFrame, with a warning."""
    index = [name for name in names if _INDEX.fullmatch(name)]
    if index:
        warnings.warn(
            f"{table.path}: {_quoted(index)} is the index of a DataFrame, so it is no target. "
            "Write the table with index=False; or give the column a name to have it predicted.",
            stacklevel=2,
        )
    return [name for name in names if name not in index]
