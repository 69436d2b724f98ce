"""Rows of a table with their line numbers: CSV, TSV, `.smi` (each may be gzipped) or Parquet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from graphfold.datasets.files.csv_records import csv_records
from graphfold.datasets.files.text_files import at_least_one, open_bytes, scan_lines
from graphfold.errors import DataError, did_you_mean


class Row(NamedTuple):
    """One record of a table.

    Args:
        line: the 1-based line where it begins. A Parquet row has the line that it would have in a
            CSV file with a header: the first row is line 2.
        cells: one text for each column, as it stands in the file. A row of another length is cut
            or filled with empty cells, and has a fault.
        fault: what is wrong with the form of the row, without a full stop; None if nothing is.
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None


class Table:
    """A table that is read as a stream, as often as one likes.

    Args:
        path: the file.
        columns: the names of its columns, in order.
        read: begins a new reading of its rows.
        header_line: the line of the header; None where no line is one.
        has_names: whether the file itself names its columns.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        read: Callable[[], Iterator[Row]],
        header_line: int | None = None,
        has_names: bool = True,
    ) -> None:
        self.path = path
        self.columns = tuple(columns)
        self.header_line = header_line
        self.has_names = has_names
        self._read = read

    def rows(self) -> Iterator[Row]:
        """The rows, in order and in constant memory.

        Raises:
            DataError: if there is no row, or the file turns out to be unreadable on the way.
        """
        return at_least_one(self._read(), self.path, "records")

    def find(self, names: Sequence[str], option: str) -> list[int]:
        """The positions of columns.

        Args:
            names: the names asked for. Upper and lower case differ.
            option: the option that they come from, for the remedy.

        Raises:
            DataError: if the table lacks one of the names or has one of them twice.
        """
        missing = [name for name in names if name not in self.columns]
        if missing:
            hint = "".join(_hint(name, self.columns) for name in missing)
            raise self._refuse(
                f"no column {_quoted(missing)} among {_quoted(self.columns)}.{hint} Set {option}.",
                missing,
            )
        repeated = [name for name in names if self.columns.count(name) > 1]
        if repeated:
            fault = f"the header has the column {_quoted(repeated)} more than once."
            raise self._refuse(f"{fault} Rename one of the two.", repeated)
        return [self.columns.index(name) for name in names]

    def _refuse(self, message: str, names: list[str]) -> DataError:
        place = str(self.path) if self.header_line is None else f"{self.path}:{self.header_line}"
        return DataError(
            f"{place}: {message}", path=str(self.path), line=self.header_line, columns=names
        )


def open_table(path: Path) -> Table:
    """Opens a table; its kind is told by its name.

    - `.csv`: cells parted by commas, or by semicolons or tabs where the header has no comma;
      `.tsv`: by tabs. The first line is the header. Quoted cells may hold separators, line ends
      (which become LF) and doubled quotes. Blank lines are no records.
    - `.smi`: a SMILES, then blank or tab, then a name; the columns are `smiles` and `name`. There
      is no header, and blank lines are no records.
    - `.parquet`: values become text: missing ones are empty, booleans 1 and 0.

    All but Parquet may be gzipped and then end in `.gz`.

    Raises:
        DataError: if there is no such file, its kind is unknown, or it has no header.
    """
    path = Path(path)
    kind = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    opener = _OPENERS.get(kind.suffix.lower())
    if opener is not None:
        return opener(path)
    open_bytes(path).close()
    raise DataError(
        f"{path}: is of no known kind of table. Give a file whose name ends in .csv, .tsv or .smi "
        "(.gz may follow), or in .parquet.",
        path=str(path),
    )


def _open_csv(path: Path, separators: str = ",;\t") -> Table:
    first = next((line.text for line in scan_lines(path) if line.text.strip()), "")
    unquoted = re.sub('"[^"]*"', "", first)
    delimiter = next((mark for mark in separators if mark in unquoted), separators[0])
    header = next(csv_records(path, delimiter), None)
    if header is None:
        raise DataError(f"{path}: is empty. Give a table with a header.", path=str(path))
    line, columns, fault = header
    if fault is not None:
        raise DataError(f"{path}:{line}: {fault}. Correct the header.", path=str(path), line=line)

    def read() -> Iterator[Row]:
        records = csv_records(path, delimiter)
        next(records)
        return (_fit(Row(*record), len(columns)) for record in records)

    return Table(path, columns, read, line)


def _open_tsv(path: Path) -> Table:
    return _open_csv(path, "\t")


def _fit(row: Row, num_columns: int) -> Row:
    num_cells = len(row.cells)
    if num_cells == num_columns:
        return row
    cells = (*row.cells, *[""] * (num_columns - num_cells))[:num_columns]
    count = "1 cell" if num_cells == 1 else f"{num_cells} cells"
    fault = f"the row has {count}, but the header has {num_columns}"
    return Row(row.line, cells, row.fault or fault)


def _open_smi(path: Path) -> Table:
    return Table(path, ("smiles", "name"), lambda: _smi_rows(path), has_names=False)


def _smi_rows(path: Path) -> Iterator[Row]:
    for line, text, fault in scan_lines(path):
        smiles, _, name = text.replace("\t", " ").strip(" ").partition(" ")
        if smiles:
            yield Row(line, (smiles, name.strip(" ")), None if fault is None else fault.fault)


def _open_parquet(path: Path) -> Table:
    open_bytes(path).close()
    # Imported here, since most tables are text and the import takes its time.
    import pyarrow
    from pyarrow import parquet

    try:
        columns = parquet.read_schema(path).names
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error

    def read() -> Iterator[Row]:
        lines = count(2)
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=1024):
                    values = [column.to_pylist() for column in batch.columns]
                    for cells in zip(*values, strict=True):
                        yield Row(next(lines), tuple(map(_text, cells)))
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(path, error) from error

    return Table(path, columns, read)


def _damaged(path: Path, error: Exception) -> DataError:
    reason = str(error).splitlines()[0].rstrip(".")
    return DataError(
        f"{path}: cannot be read as Parquet ({reason}). Download or write it again.", path=str(path)
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


_OPENERS = {".csv": _open_csv, ".tsv": _open_tsv, ".smi": _open_smi, ".parquet": _open_parquet}


def _hint(name: str, columns: Sequence[str]) -> str:
    """Blanks and upper case are the likeliest slips, then a letter or two."""
    folded = {column.strip().casefold(): column for column in columns}
    same = folded.get(name.strip().casefold())
    return did_you_mean(name, columns) if same is None else f" Did you mean '{same}'?"


def _quoted(names: Sequence[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + more
