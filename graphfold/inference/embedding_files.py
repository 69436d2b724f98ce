"""Files of embeddings: a table (CSV, Parquet) or an array (.npy, .npz), written as a stream."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from graphfold.errors import ConfigError
from graphfold.files import whole_file
from graphfold.inference.predict import csv_line, open_output
from graphfold.inference.prediction import free_names


class EmbeddedRecord(NamedTuple):
    """One record of the input.

    Args:
        cells: those of its row in the input, or its line alone.
        line: the 1-based line where it begins.
        vector: [width] float32, its embedding; None if there is none.
        reason: why there is none.
    """

    cells: Sequence[str]
    line: int
    vector: NDArray[np.float32] | None
    reason: str


#: Writes a file, from the names of the input's columns, the width and the records.
Writer: TypeAlias = Callable[
    [Path | None, Sequence[str], int, Iterator[EmbeddedRecord]],
    None,
]

#: Rows of a Parquet file that are written at once.
_ROWS_AT_ONCE = 4096

#: Reasons that are told where a file has no room for them.
_MOST_REASONS = 10


def choose_format(output: Path | None) -> Writer:
    """The writer for the suffix of a file; a CSV table for standard output.

    Raises:
        ConfigError: if there is none for the suffix.
    """
    suffix = ".csv" if output is None else output.suffix.lower()
    if suffix not in WRITERS:
        raise ConfigError(
            f"{output}: embeddings are not written as '{suffix}'. Use {', '.join(WRITERS)}."
        )
    return WRITERS[suffix]


def write_csv(
    output: Path | None, columns: Sequence[str], width: int, records: Iterable[EmbeddedRecord]
) -> None:
    """The input's columns, embedding_0, embedding_1, ..., and the reason."""
    with open_output(output) as file:
        file.write(csv_line(_header(columns, width)))
        for record in records:
            numbers: Sequence[Any] = [""] * width
            if record.vector is not None:
                numbers = record.vector.tolist()
            shown = [n if n == "" else f"{n:.7g}" for n in numbers]
            file.write(csv_line([*record.cells, *shown, record.reason]))


def write_parquet(
    output: Path | None, columns: Sequence[str], width: int, records: Iterator[EmbeddedRecord]
) -> None:
    """The columns of the CSV table: text, float32 (null in bad rows), and text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert output is not None
    kinds = [pa.string()] * len(columns) + [pa.float32()] * width + [pa.string()]
    schema = pa.schema(list(zip(_header(columns, width), kinds, strict=True)))
    with whole_file(output) as file, pq.ParquetWriter(file, schema) as writer:
        while chunk := list(islice(records, _ROWS_AT_ONCE)):
            vectors = _filled([record.vector for record in chunk], width)
            is_bad = np.array([record.vector is None for record in chunk])
            arrays = [pa.array(cells) for cells in zip(*(r.cells for r in chunk), strict=True)]
            arrays += [pa.array(vectors[:, i], mask=is_bad) for i in range(width)]
            arrays.append(pa.array([record.reason for record in chunk]))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def write_npy(
    output: Path | None, columns: Sequence[str], width: int, records: Iterable[EmbeddedRecord]
) -> None:
    """[num_records, width] float32; bad records are rows of NaN, their reasons go to stderr."""
    assert output is not None
    with whole_file(output) as file:
        bad = _write_array(file, width, records)
    for record in bad[:_MOST_REASONS]:
        print(f"line {record.line}: {record.reason}", file=sys.stderr)
    if len(bad) > _MOST_REASONS:
        print(f"and {len(bad) - _MOST_REASONS} more bad records", file=sys.stderr)


def write_npz(
    output: Path | None, columns: Sequence[str], width: int, records: Iterable[EmbeddedRecord]
) -> None:
    """`embedding` as in a .npy file; `bad_row`, `bad_line` and `bad_reason` of the bad records.

    `bad_row` [num_bad] is the position of each in `embedding`, `bad_line` its line in the input.
    """
    assert output is not None
    with whole_file(output) as file, tempfile.TemporaryFile(dir=output.parent) as array:
        bad = _write_array(array, width, records)
        array.seek(0)
        with zipfile.ZipFile(file, "w") as archive:
            with archive.open("embedding.npy", "w", force_zip64=True) as member:
                while content := array.read(1 << 20):
                    member.write(content)
            lists = {
                "bad_row": np.array([int(record.cells[0]) for record in bad], dtype=np.int64),
                "bad_line": np.array([record.line for record in bad], dtype=np.int64),
                "bad_reason": np.array([record.reason for record in bad], dtype=np.str_),
            }
            for name, values in lists.items():
                with archive.open(f"{name}.npy", "w") as member:
                    npy.write_array(member, values, allow_pickle=False)


#: Suffix -> what writes such a file.
WRITERS: dict[str, Writer] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".npy": write_npy,
    ".npz": write_npz,
}


def _header(columns: Sequence[str], width: int) -> list[str]:
    names = [*(f"embedding_{number}" for number in range(width)), "reason"]
    return [*columns, *free_names(names, columns)]


def _filled(vectors: Sequence[NDArray[np.float32] | None], width: int) -> NDArray[np.float32]:
    """[num_records, width], rows of NaN where there is no vector."""
    rows = np.full((len(vectors), width), np.nan, dtype=np.float32)
    for row, vector in enumerate(vectors):
        if vector is not None:
            rows[row] = vector
    return rows


def _write_array(
    file: BinaryIO, width: int, records: Iterable[EmbeddedRecord]
) -> list[EmbeddedRecord]:
    """Writes an array as it comes; returns the bad records, with their rows for cells."""
    start, count, bad = file.tell(), 0, []
    _write_header(file, 0, width)
    for record in records:
        if record.vector is None:
            bad.append(record._replace(cells=(str(count),)))
        file.write(_filled([record.vector], width).tobytes())
        count += 1
    file.seek(start)
    _write_header(file, count, width)  # as long as the first: numpy leaves room for the count
    return bad


def _write_header(file: BinaryIO, count: int, width: int) -> None:
    facts = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
    npy.write_array_header_1_0(file, facts)
