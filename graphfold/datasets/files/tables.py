"""Rows of tables with line numbers and faults: CSV, TSV, `.smi`, Parquet, and kinds of others.

A column may name the part of a split that a row is in.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphfold.datasets.files.record_limit import LONGEST_RECORD, RecordLimit
from graphfold.datasets.files.text_files import Line, at_least_one, open_bytes, scan_lines
from graphfold.errors import DataError, RecordError, did_you_mean, first_line, shortened
from graphfold.registry import TABLES, import_part

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def csv_records(
    path: Path, lines: Iterable[Line], delimiter: str
) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """Cuts the lines of delimited text into records, the header included; blank lines are none.

    Returns:
        For each record the 1-based line where it begins, its cells, and a fault in its form, None
        without one; a record that cannot be cut into cells has none.

    Raises:
        DataError: if the file cannot be read, or a quote that is not closed has swallowed records.
    """
    faults: list[str] = []  # of the lines that the reader has taken for the next record
    limit = RecordLimit(path)
    reader = csv.reader(_texts(lines, faults, limit), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        limit.begin()
        try:
            cells = tuple(_next_record(reader))
        except StopIteration:
            return
        except csv.Error as error:
            # A fault within one line belongs to one record. A quote that runs on has swallowed
            # other records, whose number is unknown.
            if reader.line_num > line:
                raise DataError.in_file(
                    path,
                    f"a quote opened in this row is not closed properly, up to "
                    f"line {reader.line_num}. Close it, or double the quotes inside the cell.",
                    line,
                ) from error
            yield line, (), f"the quotes or line ends of the row are wrong ({error})"
            faults.clear()
            continue
        if cells and not (len(cells) == 1 and cells[0].isspace()):
            yield line, cells, faults[0] if faults else None
        faults.clear()


def _texts(lines: Iterable[Line], faults: list[str], limit: RecordLimit) -> Iterator[str]:
    """The texts of the lines; faults of their bytes are appended to `faults`."""
    for line in lines:
        limit.add(line.number, len(line.text))
        if line.fault is not None:
            faults.append(line.fault.fault)
        yield line.text + "\n"


def _next_record(reader: Iterator[list[str]]) -> list[str]:
    """The next record, read with `LONGEST_RECORD` as the limit of a cell.

    csv's usual limit of 131,072, a setting of the process, would refuse long texts beside the
    SMILES; without one a quote that is never closed could swallow any file.
    """
    before = csv.field_size_limit(LONGEST_RECORD)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)


#: The feature of whole graphs that holds the part: "train", "val" or "test".
PART = "part of the split"

#: The words of tables, in lower case -> part.
WORDS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def read_part(cell: str, column: str) -> str:
    """The part that a cell names; raises RecordError if it names none."""
    part = WORDS.get(cell.strip().lower())
    if part is None:
        raise RecordError(
            f"'{shortened(cell)}' in the split column '{column}' is no part",
            f"Write one of {', '.join(WORDS)}, or set data.on_error=skip.",
        )
    return part


class Row(NamedTuple):
    """One record of a table.

    Args:
        line: the 1-based line where it begins. A Parquet row has the line that it would have in a
            CSV file with a header: the first row is line 2.
        cells: the text of each column. A row of another length is cut or filled with empty cells,
            and has a fault.
        fault: a fault in the form of the row, without a full stop; None without one.
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None


class StructureRow(Row):
    """A row of a file of structures, such as SDF; its SMILES may number the atoms otherwise.

    Attributes:
        molecule: the structure as a molecule of RDKit; None if it cannot be read.
    """

    molecule: Any = None


#: Short rows are filled up, so that a table of a few megabytes could take hours.
MOST_COLUMNS = 100_000


class Table:
    """A table that is read as a stream, any number of times.

    Args:
        path: the file.
        columns: the names of its columns, in order.
        read: begins a new reading of its rows.
        header_line: the line of the header; None where no line is one.
        smiles_column: the column of SMILES, where the kind of file says which one it is.
        name_column: the column of the names of records, likewise.

    Raises:
        DataError: if there are more than `MOST_COLUMNS` columns.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        read: Callable[[], Iterator[Row]],
        header_line: int | None = None,
        smiles_column: str | None = None,
        name_column: str | None = None,
    ) -> None:
        if len(columns) > MOST_COLUMNS:
            raise DataError.in_file(
                path,
                f"has {len(columns):,} columns, but {MOST_COLUMNS:,} are the most. Check the "
                "separator, or leave columns out.",
            )
        self.path = path
        self.columns = tuple(columns)
        self.header_line = header_line
        self.smiles_column = smiles_column
        self.name_column = name_column
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
            names: the names of the columns. Upper and lower case differ.
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
    """Opens a table of the kind that its name ends in.

    - `.csv`: cells parted by commas, or by semicolons or tabs where the header has no comma;
      `.tsv`: by tabs. The first line is the header. Quoted cells may hold separators, line ends
      (which become LF) and doubled quotes. Blank lines are no records.
    - `.smi`: a SMILES, then blank or tab, then a name; the columns are `smiles` and `name`. There
      is no header, and blank lines are no records.
    - `.parquet`: values become text: missing ones are empty, booleans 1 and 0.
    - `.sdf`, `.mol`: the column `smiles` is that of the structure, `title` the first line of its
      record, the others are its properties.
    - the kinds that other packages add, see `graphfold.registry.TABLES`.

    All but Parquet may be gzipped and then end in `.gz`.

    Raises:
        DataError: if there is no such file, its kind is unknown, or it has no header.
        ConfigError: if the reader of another package cannot be imported.
    """
    path = Path(path)
    kind = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    readers = reader_paths()
    reader = readers.get(kind.suffix.lower())
    if reader is not None:
        opened: Table = import_part(reader, f"reader of {kind.suffix}")(path)
        return opened
    open_bytes(path).close()
    raise DataError.in_file(
        path,
        f"is of no known kind of table. Give a file whose name ends in "
        f"{', '.join(sorted(readers))} (.gz may follow, but for .parquet).",
    )


def reader_paths() -> dict[str, str]:
    """Suffix -> "module:function" of every reader that is installed; nothing is imported."""
    return {suffix.lower(): path for suffix, path in TABLES.names().items()}


def open_csv(path: Path, separators: str = ",;\t") -> Table:
    """Opens a table of delimited text; raises as `open_table` does.

    Its first reading goes on where the header ends, so that the file is opened once.
    """
    begun = [_delimited(path, separators)]
    header = next(begun[0], None)
    if header is None:
        raise DataError.in_file(path, "is empty. Give a table with a header.")
    line, columns, fault = header
    if fault is not None:
        raise DataError.in_file(path, f"{fault}. Correct the header.", line)

    def read() -> Iterator[Row]:
        records = begun.pop() if begun else islice(_delimited(path, separators), 1, None)
        return (_fit(Row(*record), len(columns)) for record in records)

    return Table(path, columns, read, line)


def _delimited(path: Path, separators: str) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """The records of a file, parted by the first of the separators that its first line has."""
    lines, begin = iter(scan_lines(path)), list[Line]()
    for line in lines:
        begin.append(line)
        if line.text.strip():
            break
    unquoted = re.sub('"[^"]*"', "", begin[-1].text if begin else "")
    delimiter = next((mark for mark in separators if mark in unquoted), separators[0])
    return csv_records(path, chain(begin, lines), delimiter)


def open_tsv(path: Path) -> Table:
    """Opens a table with tabs between its cells; raises as `open_table` does."""
    return open_csv(path, "\t")


def _fit(row: Row, num_columns: int) -> Row:
    num_cells = len(row.cells)
    if num_cells == num_columns:
        return row
    cells = (*row.cells, *[""] * (num_columns - num_cells))[:num_columns]
    count = "1 cell" if num_cells == 1 else f"{num_cells} cells"
    fault = f"the row has {count}, but the header has {num_columns}"
    return Row(row.line, cells, row.fault or fault)


def open_smi(path: Path) -> Table:
    """Opens a file of SMILES and names."""
    open_bytes(path).close()
    rows = partial(_smi_rows, path)
    return Table(path, ("smiles", "name"), rows, smiles_column="smiles", name_column="name")


def _smi_rows(path: Path) -> Iterator[Row]:
    for line, text, fault in scan_lines(path):
        smiles, _, name = text.replace("\t", " ").strip(" ").partition(" ")
        if smiles:
            yield Row(line, (smiles, name.strip(" ")), None if fault is None else fault.fault)


def open_parquet(path: Path) -> Table:
    """Opens a Parquet file; raises DataError if it is damaged."""
    from pyarrow import parquet  # here, since most tables are text and the import takes its time

    open_bytes(path).close()

    with _undamaged(path):
        columns = parquet.read_schema(path).names

    def read() -> Iterator[Row]:
        lines = count(2)
        with _undamaged(path):
            for batch in parquet_batches(path, 1024):
                values = [column.to_pylist() for column in batch.columns]
                for cells in zip(*values, strict=True):
                    yield Row(next(lines), tuple(map(_text, cells)))

    return Table(path, columns, read)


def parquet_batches(path: Path, size: int) -> Iterator[RecordBatch]:
    """The rows of a Parquet file, so many at a time; raises DataError if it is damaged."""
    from pyarrow import parquet

    with _undamaged(path), parquet.ParquetFile(path) as file:
        yield from file.iter_batches(size)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Within, what pyarrow raises about a Parquet file becomes an error that names the file."""
    import pyarrow

    try:
        yield
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError.in_file(
            path, f"cannot be read as Parquet ({first_line(error)}). Download or write it again."
        ) from error


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _hint(name: str, columns: Sequence[str]) -> str:
    """Blanks and upper case are the likeliest slips, then a letter or two."""
    folded = {column.strip().casefold(): column for column in columns}
    same = folded.get(name.strip().casefold())
    return did_you_mean(name, columns) if same is None else f" Did you mean '{same}'?"


def _quoted(names: Sequence[str], most: int = 30) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + more
