"""Tables of predictions as Parquet, with the types that the input and the predictions have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from graphfold.datasets.adapter import Record
from graphfold.datasets.files.tables import parquet_batches
from graphfold.errors import ConfigError
from graphfold.files import is_stream, whole_file
from graphfold.inference.frames import read_frame
from graphfold.inference.prediction import Prediction
from graphfold.inference.predictor import Predictor, Unread
from graphfold.progress import shown

if TYPE_CHECKING:
    import pyarrow

#: Rows that are put into columns together, and groups of them that make a row group of the file.
_ROWS, _CHUNKS = 1024, 64


def write_parquet(predictor: Predictor, path: Path, output: Path) -> tuple[int, int]:
    """Writes the columns of a table, the predictions, and the reason, of fixed types.

    The columns of a Parquet file keep their types; those of other tables are text. Broken off, it
    begins anew: of a Parquet file no part can be gone on with.

    Args:
        predictor: the model.
        path: the table.
        output: the file to write, whole or not at all.

    Returns:
        How many records were predicted, and how many could not be read.

    Raises:
        ConfigError: if the run reads no tables, or the output is a pipe.
        DataError: if the file cannot be used as a whole.
    """
    from pyarrow import concat_tables
    from pyarrow.parquet import ParquetWriter

    if not predictor.adapter.reads_tables:
        raise ConfigError(
            f"{output}: Parquet holds tables, but the run reads none. Leave --format out, and name "
            "a file of JSON lines."
        )
    if is_stream(output):
        raise ConfigError(f"{output}: is a pipe, and Parquet takes a file. Name one with --output.")
    predictor.choose_anew()
    records = shown(predictor.walk(path, predictor.predict_graphs), f"predicting {path.name}")
    good = bad = 0
    tables = _tables(predictor, path, records)
    first = next(tables)
    with whole_file(output) as file, ParquetWriter(file, first.schema) as writer:
        group = [first]
        while group:
            table = concat_tables(group)
            writer.write_table(table)
            failed = sum(bool(reason) for reason in table.column(-1).to_pylist())
            good, bad = good + table.num_rows - failed, bad + failed
            group = [*islice(tables, _CHUNKS)]
    return good, bad


def _tables(
    predictor: Predictor, path: Path, records: Iterator[tuple[Record, Prediction | Unread]]
) -> Iterator[pyarrow.Table]:
    """The rows of a file with their predictions, some at a time."""
    typed = _typed_rows(path)
    while chunk := [*islice(records, _ROWS)]:
        answers = [
            Prediction(*answer) if isinstance(answer, Unread) else answer for _, answer in chunk
        ]
        rows = _text_rows([record for record, _ in chunk]) if typed is None else next(typed)
        frame = read_frame(rows, "predict")
        assert frame is not None
        yield frame.add(predictor.filled_columns(frame.names, answers))


def _typed_rows(path: Path) -> Iterator[pyarrow.RecordBatch] | None:
    """The rows of a Parquet file; None of another."""
    if path.suffix.lower() != ".parquet":
        return None
    return parquet_batches(path, _ROWS)


def _text_rows(records: Sequence[Record]) -> pyarrow.Table:
    import pyarrow

    columns = zip(*(map(_readable, record.cells) for record in records), strict=True)
    return pyarrow.table(
        [pyarrow.array(cells, pyarrow.string()) for cells in columns], names=records[0].columns
    )


def _readable(cell: str) -> str:
    """A cell without the bytes that are not UTF-8, which the reason of its row is about."""
    return cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
