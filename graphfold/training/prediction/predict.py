"""Prediction on files: as many records out as in, in the same order, in constant memory."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from graphfold.errors import DataError
from graphfold.files import check_output, whole_file
from graphfold.training.config.overrides import in_words_of_set, parse_settings
from graphfold.training.prediction.prediction import Prediction
from graphfold.training.prediction.predictor import Predictor, load
from graphfold.training.process.process import prepare_process

#: Writes what a predictor says of each record of a file; returns how many were good, and bad.
ToFile: TypeAlias = Callable[[Predictor, Path, Path | None], tuple[int, int]]

#: Bytes up to which the cells are not compiled for a file: that takes a second, more than they do.
SMALL_FILE = 10_000


def predict_command(args: argparse.Namespace) -> int:
    """`graphfold predict`."""
    return apply_command(args, predict_file, "predicted")


def apply_command(args: argparse.Namespace, to_file: ToFile, done: str) -> int:
    """A command that applies a run to every record of a file.

    Args:
        args: the arguments of the command.
        to_file: writes the results; see `predict_file`.
        done: what becomes of a record, for the message at the end.

    Raises:
        DataError: if not one record can be read.
    """
    check_output(args.output)
    settings = parse_settings(args.settings)
    if args.batch_size is not None:
        settings["batch_size"] = args.batch_size
    with in_words_of_set():
        predictor = load(args.run_path, args.trust, **settings)
        prepare_process(predictor.trained.checkpoint.config)
        if args.input.is_file() and args.input.stat().st_size < SMALL_FILE:
            predictor.trained.model.network.fuse = False
        good, bad = to_file(predictor, args.input, args.output)
    print(f"{good} {done}, {bad} could not be read (see their reason)", file=sys.stderr)
    if bad and not good:
        raise DataError(
            f"{args.input}: not one record could be read with the run's adapter; the reason is "
            "beside each. Give a file of the format that the run was trained on, or say with --set "
            "how to read it."
        )
    return 0


def predict_file(predictor: Predictor, path: Path, output: Path | None) -> tuple[int, int]:
    """Writes a prediction or a reason for each record of a file.

    Args:
        predictor: the model.
        path: the file.
        output: where to write, whole or not at all; None for standard output.

    Returns:
        How many records were predicted, and how many could not be read.

    Raises:
        DataError: if the file cannot be used as a whole.
    """
    require_input(path)
    lines = _csv_lines if predictor.adapter.reads_tables else _json_lines
    counts = [0, 0]
    with open_output(output) as file:
        for text, is_bad in lines(predictor, path):
            file.write(text)
            counts[is_bad] += 1
    if lines is _csv_lines:
        counts[0] -= 1  # the header
    return counts[0], counts[1]


def require_input(path: Path) -> None:
    """Raises DataError if there is no such file."""
    if not path.exists():
        raise DataError(f"{path}: no such file. Correct the path.", path=str(path))


def _json_lines(predictor: Predictor, path: Path) -> Iterator[tuple[str, bool]]:
    records = predictor.adapter.records(path)
    for prediction in predictor.predict_records(path, records):
        text = json.dumps(prediction.to_dict(), ensure_ascii=False, allow_nan=False)
        yield text + "\n", bool(prediction.reason)


def _csv_lines(predictor: Predictor, path: Path) -> Iterator[tuple[str, bool]]:
    """The input's columns, then the predictions, then the reason."""
    table, head = predictor.adapter.open_table(path), predictor.trained.model.head
    names = [*head.columns_of(predictor.adapter.class_names), "reason"]
    header = csv_line([*table.columns, *free_names(names, table.columns)])
    records = predictor.adapter.records(path)
    first = list(islice(records, 1))  # a missing column is found here, before the header is written
    yield header, False
    predictions = predictor.predict_records(path, chain(first, records))
    for row, prediction in zip(table.rows(), predictions, strict=True):
        cells = [*row.cells, *_values(prediction, len(names) - 1), prediction.reason]
        yield csv_line(cells), bool(prediction.reason)


def free_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The names, with _2, _3 and so on where the input has such a column."""
    used, free = set(taken), []
    for name in names:
        candidate, number = name, 1
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        used.add(candidate)
        free.append(candidate)
    return free


def _values(prediction: Prediction, count: int) -> list[Any]:
    if prediction.reason:
        return [""] * count
    cells: list[Any] = []
    for told in prediction.targets.values():
        cells += [told.value, *told.probabilities.values(), *told.extra.values()]
    return cells


def csv_line(cells: Sequence[Any]) -> str:
    """A line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A text file that is written whole or not at all; standard output for None."""
    if path is None:
        yield sys.stdout
        return
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.flush()
        text.detach()
