"""Writers of predictions and embeddings, one for each format; files are written completely."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import numpy as np

from graphfold.datasets.adapter import Record
from graphfold.datasets.files.tables import parquet_batches
from graphfold.datasets.storage.store import write_npy_header
from graphfold.errors import ConfigError, DataError
from graphfold.files import is_stream, whole_file
from graphfold.inference.answers import Answer, Answers
from graphfold.inference.frames import read_frame, with_reason
from graphfold.inference.prediction import written_nodes

if TYPE_CHECKING:
    import pyarrow

#: Writes the answers of a file to another; to standard output for None.
Writer: TypeAlias = Callable[[Path | None, Answers], None]

#: Rows of a Parquet file that are converted together, and how many of these pieces make a group.
_ROWS, _CHUNKS = 1024, 64


@contextmanager
def text_output(path: Path | None) -> Iterator[TextIO]:
    """A text file that appears only when it is complete; standard output for None.

    Surrogates stand for bytes that are not UTF-8, as in `Adapter.text_of`.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # as files are
        yield sys.stdout
        return
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
        yield text
        text.flush()
        text.detach()


def write_csv(output: Path | None, answers: Answers) -> None:
    """Writes the input's columns, the added columns, and the reason.

    Records that are no rows of a table have the column `line`.
    """
    is_table = answers.predictor.adapter.reads_tables
    with text_output(output) as file:
        table = csv.writer(file, lineterminator="\n")
        for number, answer in enumerate(answers):
            record = answer.record
            columns, cells = record.columns, record.cells
            if not is_table:
                columns, cells = ("line",), (str(record.line),)
            if number == 0:
                added = with_reason(answers.columns, columns)
                table.writerow([*columns, *(column.name for column in added)])
            added_cells = [  # lists are JSON
                json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell
                for cell in answer.cells
            ]
            table.writerow([*cells, *added_cells, answer.reason])


def write_json(output: Path | None, answers: Answers) -> None:
    """Writes one JSON object for each record."""
    with text_output(output) as file:
        for answer in answers:
            assert answer.prediction is not None
            facts = answer.prediction.to_dict()
            if answer.contributions is not None:
                reason = facts.pop("reason")
                facts |= {**answer.contributions.to_dict(), "reason": reason}
            file.write(json.dumps(facts, ensure_ascii=False, allow_nan=False) + "\n")


def write_records(output: Path | None, answers: Answers) -> None:
    """Writes the records in their own format, with predictions."""
    adapter, head = answers.predictor.adapter, answers.predictor.trained.head
    with text_output(output) as file:
        for answer in answers:
            assert answer.prediction is not None
            text = adapter.text_of(answer.record)
            file.write(adapter.write_back(text, written_nodes(answer.prediction, head)))


def write_parquet(output: Path | None, answers: Answers) -> None:
    """Writes the columns of a table, the added columns, and the reason, of fixed types.

    The columns of a Parquet file keep their types; those of other tables are text.

    Raises:
        ConfigError: for standard output or a pipe.
    """
    from pyarrow import concat_tables
    from pyarrow.parquet import ParquetWriter

    output = _a_file(output, "Parquet")
    tables = _tables(answers)
    first = next(tables, None)
    if first is None:
        raise DataError(f"{answers.path}: has no record. Give a table with rows.")
    with whole_file(output) as file, ParquetWriter(file, first.schema) as writer:
        group = [first]
        while group:
            writer.write_table(concat_tables(group))
            group = [*islice(tables, _CHUNKS)]


def _tables(answers: Answers) -> Iterator[pyarrow.Table]:
    """The rows of a file with their answers, some at a time."""
    typed = None
    if answers.path.suffix.lower() == ".parquet":
        typed = parquet_batches(answers.path, _ROWS)
    rest = iter(answers)
    while chunk := [*islice(rest, _ROWS)]:
        rows = next(typed) if typed is not None else _text_rows(answers, chunk)
        frame = read_frame(rows, "predict")
        assert frame is not None
        columns = with_reason(answers.columns, frame.names)
        cells = zip(*([*answer.cells, answer.reason] for answer in chunk), strict=True)
        yield frame.add([c._replace(values=v) for c, v in zip(columns, cells, strict=True)])


def _text_rows(answers: Answers, chunk: Sequence[Answer]) -> pyarrow.Table:
    import pyarrow

    if not answers.predictor.adapter.reads_tables:
        return pyarrow.table({"line": [answer.record.line for answer in chunk]})
    records: list[Record] = [answer.record for answer in chunk]
    columns = zip(*(map(_readable, record.cells) for record in records), strict=True)
    arrays = [pyarrow.array(cells, pyarrow.string()) for cells in columns]
    return pyarrow.table(arrays, names=records[0].columns)


def _readable(cell: str) -> str:
    """A cell with U+FFFD for bytes that are not UTF-8; the reason of its row names them."""
    return cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_npy(output: Path | None, answers: Answers) -> None:
    """Writes [num_records, width] float32, an embedding in each row, NaN for a bad record.

    Raises:
        ConfigError: for standard output or a pipe.
    """
    with whole_file(_a_file(output, "An array")) as file:
        write_npy_header(file, np.dtype(np.float32), (0, 0))
        for answer in answers:
            row = np.full(len(answers.columns), np.nan, np.float32)
            if answer.vector is not None:
                row[:] = answer.vector.numpy()
            file.write(row.tobytes())
        file.seek(0)  # the second header is as long as the first: numpy leaves room for the count
        shape = answers.good + answers.bad, len(answers.columns)
        write_npy_header(file, np.dtype(np.float32), shape)


def _a_file(output: Path | None, what: str) -> Path:
    if output is None or is_stream(output):
        raise ConfigError(f"{what} is written to a file. Name one with --output.")
    return output
