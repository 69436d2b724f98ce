"""`graphfold fingerprint`: the embedding of every record of a file, in constant memory."""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from torch import Tensor

from graphfold.datasets.adapter import Record
from graphfold.files import check_output, is_stream
from graphfold.inference.embedding_files import EmbeddedRecord, Writer, choose_format
from graphfold.inference.predict import apply_command, require_input, write_answers
from graphfold.inference.predictor import Predictor, Unread
from graphfold.progress import shown

_NOT_FINITE = "the model computes no finite embedding for this record"


def fingerprint_command(args: argparse.Namespace) -> int:
    """`graphfold fingerprint`."""
    check_output(args.output)
    choose_format(args.output)  # a wrong suffix is told before any work
    return apply_command(
        args,
        lambda predictor, _: nullcontext(
            lambda _, path: write_embeddings(predictor, path, args.output)
        ),
        "embedded",
    )


def write_embeddings(predictor: Predictor, path: Path, output: Path | None) -> tuple[int, int]:
    """Writes an embedding or a reason for each record of a file.

    Args:
        predictor: the model.
        path: the file.
        output: where to write, whole or not at all; its suffix says in which form (see
            `embedding_files`). None for a table on standard output.

    Returns:
        How many records were embedded, and how many could not be read.

    Raises:
        ConfigError: if there is no form of that suffix.
        DataError: if the file cannot be used as a whole.
    """
    require_input(path)
    write = choose_format(output)
    columns: Sequence[str] = ("line",)
    if predictor.adapter.reads_tables:
        columns = predictor.adapter.open_table(path).columns
    if output is None or is_stream(output) or is_stream(path):
        records = shown(_embedded(predictor, path), f"embedding {path.name}")
        return _write(write, output, columns, records)
    rest = output.with_name(f"{output.name}.records")
    lines = partial(_lines, predictor, path)
    write_answers(predictor, path, rest, lines, "embedding", {"fingerprint": output.name})
    with rest.open("rb") as file:
        counts = _write(write, output, columns, map(_from_line, file))
    rest.unlink()
    return counts


def _write(
    write: Writer, output: Path | None, columns: Sequence[str], records: Iterator[EmbeddedRecord]
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
    write(output, columns, width, _counted(chain(waiting, records), counts))
    return counts[0], counts[1]


def _lines(predictor: Predictor, path: Path, skip: int) -> Iterator[tuple[str, bool | None]]:
    """The records as lines of JSON: a form of which a part can be gone on with."""
    for record in _embedded(predictor, path, skip):
        vector = None if record.vector is None else record.vector.tobytes().hex()
        line = json.dumps([record.cells, record.line, vector, record.reason])
        yield line + "\n", record.vector is None


def _from_line(line: bytes) -> EmbeddedRecord:
    cells, number, vector, reason = json.loads(line)
    numbers = None if vector is None else np.frombuffer(bytes.fromhex(vector), np.float32)
    return EmbeddedRecord(cells, number, numbers, reason)


def _embedded(predictor: Predictor, path: Path, skip: int = 0) -> Iterator[EmbeddedRecord]:
    """One record after the other, with the cells of its row where it has any."""
    lines: deque[int] = deque()
    records = _noted(islice(predictor.adapter.records(path), skip, None), lines)
    answers = predictor.map_records(path, records, predictor.embed_graphs)
    if predictor.adapter.reads_tables:
        rows = islice(predictor.adapter.open_table(path).rows(), skip, None)
        for row, answer in zip(rows, answers, strict=True):
            yield _record(row.cells, lines.popleft(), answer)
        return
    for answer in answers:
        line = lines.popleft()
        yield _record((str(line),), line, answer)


def _noted(records: Iterable[Record], lines: deque[int]) -> Iterator[Record]:
    """The records; their lines wait until they are answered."""
    for record in records:
        lines.append(record.line)
        yield record


def _record(cells: Sequence[str], line: int, answer: Tensor | Unread) -> EmbeddedRecord:
    if isinstance(answer, Unread):
        return EmbeddedRecord(cells, line, None, answer.reason)
    if not answer.isfinite().all():
        return EmbeddedRecord(cells, line, None, _NOT_FINITE)
    return EmbeddedRecord(cells, line, answer.numpy(), "")


def _counted(records: Iterator[EmbeddedRecord], counts: list[int]) -> Iterator[EmbeddedRecord]:
    """The records, counted: good ones, and bad."""
    for record in records:
        counts[record.vector is None] += 1
        yield record
