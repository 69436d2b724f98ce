"""`graphfold fingerprint`: the embedding of every record of a file, in constant memory.

An embedding is the vector of a graph that the head of a trained model reads. Its file is a table
(CSV, Parquet) or an array (.npy, .npz), written as a stream.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from graphfold.errors import ConfigError
from graphfold.files import is_stream, whole_file
from graphfold.inference.apply import Job, apply_to_files
from graphfold.inference.output import csv_line, open_output, require_input, write_answers
from graphfold.inference.places import Place, is_folder, suffix_of
from graphfold.inference.prediction import free_names
from graphfold.inference.predictor import Predictor, Unread
from graphfold.progress import shown


class EmbeddedRecord(NamedTuple):
    """One record of the input.

    Args:
        columns: those of the input, or that of its line.
        cells: those of its row in the input, or its line alone.
        line: the 1-based line where it begins.
        vector: [width] float32, its embedding; None if there is none.
        reason: why there is none.
    """

    columns: Sequence[str]
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


def choose_format(output: Place | None) -> Writer:
    """The writer for the suffix of a file; a CSV table for standard output.

    Raises:
        ConfigError: if there is none for the suffix.
    """
    suffix = ".csv" if output is None else suffix_of(output)
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


_NOT_FINITE = "the model computes no finite embedding for this record"


def fingerprint_files(job: Job, output: Place | None, form: str | None = None) -> None:
    """Writes the embedding of every record of a job's inputs; see `write_embeddings`.

    Args:
        job: the model and the inputs.
        output: a file, or of several inputs a folder, which gets a file for each; text is an
            address; None for standard output.
        form: of the files in a folder, a suffix without its dot; None for csv. Of a file its own
            suffix says it.

    Raises:
        ConfigError: if there is no such form, or several inputs would be written to one file.
    """
    is_one = len(job.inputs) == 1 and Path(job.inputs[0]).is_file()
    is_file = output is None or (not is_folder(output) and (is_one or bool(suffix_of(output))))
    if is_file:
        choose_format(output)  # a wrong suffix is told before any work
    if is_file and form not in (None, "csv" if output is None else suffix_of(output)[1:]):
        raise ConfigError(
            f"--format {form} is the form of files in a folder, and --output is none. Leave "
            "--format out: the ending of --output says the form."
        )
    apply_to_files(
        job,
        output,
        _write_file,
        "embedded",
        lambda _: f".{form or 'csv'}",
        {"form": form or "csv"},
        joins=False,
    )


def _write_file(
    predictor: Predictor, path: Path, file: Path | None, _: list[str] | None
) -> tuple[int, int]:
    """`write_embeddings`; inputs are not joined."""
    return write_embeddings(predictor, path, file)


def write_embeddings(predictor: Predictor, path: Path, output: Path | None) -> tuple[int, int]:
    """Writes an embedding or a reason for each record of a file.

    Args:
        predictor: the model.
        path: the file.
        output: where to write, whole or not at all; its suffix says in which form.
            None for a table on standard output.

    Returns:
        How many records were embedded, and how many could not be read.

    Raises:
        ConfigError: if there is no form of that suffix.
        DataError: if the file cannot be used as a whole.
    """
    require_input(path)
    write = choose_format(output)
    if output is None or is_stream(output) or is_stream(path):
        return _write(write, output, shown(_embedded(predictor, path), f"embedding {path.name}"))
    rest = output.with_name(f"{output.name}.records")
    lines = partial(_lines, predictor, path)
    write_answers(predictor, path, rest, lines, "embedding", {"fingerprint": output.name})
    with rest.open("rb") as file:
        counts = _write(write, output, map(_from_line, file))
    rest.unlink()
    return counts


def _write(
    write: Writer, output: Path | None, records: Iterator[EmbeddedRecord]
) -> tuple[int, int]:
    """Writes the embeddings; returns how many records have one, and how many have not."""
    # The width is that of the first embedding; the records before it wait.
    waiting: list[EmbeddedRecord] = []
    width = 0
    for record in records:
        waiting.append(record)
        if record.vector is not None:
            width = len(record.vector)
            break
    counts = [0, 0]
    columns = waiting[0].columns if waiting else ()
    write(output, columns, width, _counted(chain(waiting, records), counts))
    return counts[0], counts[1]


def _lines(predictor: Predictor, path: Path, skip: int) -> Iterator[tuple[str, bool | None]]:
    """The records as lines of JSON: a form of which a part can be gone on with.

    The names of the columns stand in the first one.
    """
    for number, record in enumerate(_embedded(predictor, path, skip), start=skip):
        vector = None if record.vector is None else record.vector.tobytes().hex()
        columns = record.columns if number == 0 else ()
        line = json.dumps([columns, record.cells, record.line, vector, record.reason])
        yield line + "\n", record.vector is None


def _from_line(line: bytes) -> EmbeddedRecord:
    columns, cells, number, vector, reason = json.loads(line)
    numbers = None if vector is None else np.frombuffer(bytes.fromhex(vector), np.float32)
    return EmbeddedRecord(columns, cells, number, numbers, reason)


def _embedded(predictor: Predictor, path: Path, skip: int = 0) -> Iterator[EmbeddedRecord]:
    """One record after the other, with the cells of its row, or its line for the only one."""
    for record, answer in predictor.walk(path, predictor.embed_graphs, skip):
        columns, cells, line = record.columns, record.cells, record.line
        if not predictor.adapter.reads_tables:
            columns, cells = ("line",), (str(line),)
        if isinstance(answer, Unread):
            yield EmbeddedRecord(columns, cells, line, None, answer.reason)
        elif not answer.isfinite().all():
            yield EmbeddedRecord(columns, cells, line, None, _NOT_FINITE)
        else:
            yield EmbeddedRecord(columns, cells, line, answer.numpy(), "")


def _counted(records: Iterator[EmbeddedRecord], counts: list[int]) -> Iterator[EmbeddedRecord]:
    """The records, counted: good ones, and bad."""
    for record in records:
        counts[record.vector is None] += 1
        yield record
