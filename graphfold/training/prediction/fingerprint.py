"""`graphfold fingerprint`: the embedding of every record of a file, in constant memory."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from torch import Tensor

from graphfold.datasets.adapter import Record
from graphfold.files import check_output
from graphfold.training.prediction.embedding_files import EmbeddedRecord, choose_format
from graphfold.training.prediction.predict import apply_command, require_input
from graphfold.training.prediction.predictor import Predictor, Unread

_NOT_FINITE = "the model computes no finite embedding for this record"


def fingerprint_command(args: argparse.Namespace) -> int:
    """`graphfold fingerprint`."""
    check_output(args.output)
    choose_format(args.output)  # a wrong suffix is told before any work
    return apply_command(args, partial(write_embeddings, output=args.output), "embedded")


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
    records = _embedded(predictor, path)
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


def _embedded(predictor: Predictor, path: Path) -> Iterator[EmbeddedRecord]:
    """One record after the other, with the cells of its row where it has any."""
    lines: deque[int] = deque()
    records = _noted(predictor.adapter.records(path), lines)
    answers = predictor.map_records(path, records, predictor.embed_graphs)
    if predictor.adapter.reads_tables:
        rows = predictor.adapter.open_table(path).rows()
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
