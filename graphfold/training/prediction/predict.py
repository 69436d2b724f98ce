"""Prediction on files: as many records out as in, in the same order, in constant memory."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from graphfold.errors import DataError
from graphfold.files import check_output, whole_file
from graphfold.training.config.overrides import in_words_of_set, parse_settings
from graphfold.training.prediction.prediction import Prediction
from graphfold.training.prediction.predictor import Predictor, load
from graphfold.training.process.process import prepare_process

#: Bytes up to which the cells are not compiled for a file: that takes a second, more than they do.
SMALL_FILE = 10_000


def predict_command(args: argparse.Namespace) -> int:
    """`graphfold predict`."""
    check_output(args.output)
    settings = parse_settings(args.settings)
    if args.batch_size is not None:
        settings["batch_size"] = args.batch_size
    with in_words_of_set():
        predictor = load(args.run_path, args.trust, **settings)
        prepare_process(predictor.trained.checkpoint.config)
        if args.input.is_file() and args.input.stat().st_size < SMALL_FILE:
            predictor.trained.model.network.fuse = False
        good, bad = predict_file(predictor, args.input, args.output)
    print(f"{good} predicted, {bad} could not be read (see their reason)", file=sys.stderr)
    if predictor.num_changed:
        print(f"{predictor.num_changed} changed before reading", file=sys.stderr)
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
    if not path.exists():
        raise DataError(f"{path}: no such file. Correct the path.", path=str(path))
    lines = _csv_lines if predictor.adapter.reads_tables else _json_lines
    counts = [0, 0]
    with _open_output(output) as file:
        for text, is_bad in lines(predictor, path):
            file.write(text)
            counts[is_bad] += 1
    if lines is _csv_lines:
        counts[0] -= 1  # the header
    return counts[0], counts[1]


def _json_lines(predictor: Predictor, path: Path) -> Iterator[tuple[str, bool]]:
    for prediction in predictor.predict_path(path):
        text = json.dumps(prediction.to_dict(), ensure_ascii=False, allow_nan=False)
        yield text + "\n", bool(prediction.reason)


def _csv_lines(predictor: Predictor, path: Path) -> Iterator[tuple[str, bool]]:
    """The input's columns, then the predictions, then the reason."""
    table, head = predictor.adapter.open_table(path), predictor.trained.model.head
    names = [*head.columns_of(predictor.adapter.class_names), "reason"]
    header = _csv_line([*table.columns, *_free(names, table.columns)])
    predictions = predictor.predict_path(path)
    first = list(islice(predictions, 1))  # finds a missing column before the header is written
    yield header, False
    for row, prediction in zip(table.rows(), chain(first, predictions), strict=True):
        cells = [*row.cells, *_values(prediction, len(names) - 1), prediction.reason]
        yield _csv_line(cells), bool(prediction.reason)


def _free(names: Sequence[str], taken: Sequence[str]) -> list[str]:
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


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


@contextmanager
def _open_output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.flush()
        text.detach()
