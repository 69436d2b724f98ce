"""The records of delimited text, each with its line and what is wrong with it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphfold.datasets.files.record_limit import LONGEST_RECORD, RecordLimit
from graphfold.datasets.files.text_files import Line, scan_lines
from graphfold.errors import DataError


def csv_records(path: Path, delimiter: str) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """Cuts delimited text into records, the header included; blank lines are none.

    Returns:
        For each record the 1-based line where it begins, its cells, and what is wrong with its
        form; a record that cannot be cut into cells has none.

    Raises:
        DataError: if the file cannot be read, or a quote that is not closed has swallowed records.
    """
    faults: list[str] = []  # of the lines that the reader has taken for the next record
    limit = RecordLimit(path)
    reader = csv.reader(_texts(scan_lines(path), faults, limit), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        limit.begin()
        try:
            cells = tuple(_next_record(reader))
        except StopIteration:
            return
        except csv.Error as error:
            # Within one line the fault is that record's. A quote that runs on has swallowed other
            # records, so nobody can tell how many there are.
            if reader.line_num > line:
                raise _unclosed(path, line, reader.line_num) from error
            yield line, (), f"the quotes or line ends of the row are wrong ({error})"
            faults.clear()
            continue
        if cells and not (len(cells) == 1 and cells[0].isspace()):
            yield line, cells, faults[0] if faults else None
        faults.clear()


def _texts(lines: Iterable[Line], faults: list[str], limit: RecordLimit) -> Iterator[str]:
    """The texts of the lines; what is wrong with their bytes goes to `faults`."""
    for line in lines:
        limit.add(line.number, len(line.text))
        if line.fault is not None:
            faults.append(line.fault.fault)
        yield line.text + "\n"


def _next_record(reader: Iterator[list[str]]) -> list[str]:
    """The next record, read under our limit; that of the process is left as it was.

    The limit bounds what a quote that is never closed can swallow; csv's own limit of 131,072 would
    refuse long texts beside the SMILES.
    """
    others = csv.field_size_limit(LONGEST_RECORD)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(others)


def _unclosed(path: Path, line: int, last: int) -> DataError:
    return DataError(
        f"{path}:{line}: a quote opened in this row is not closed properly, up to line {last}. "
        "Close it, or double the quotes inside the cell.",
        path=str(path),
        line=line,
    )
