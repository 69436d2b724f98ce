"""Prediction on files: as many records out as in, in the same order, in constant memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Record
from graphfold.errors import ConfigError
from graphfold.inference.apply import Job, apply_to_files
from graphfold.inference.explain import Contributions, Explainer
from graphfold.inference.output import csv_line, require_input, write_answers
from graphfold.inference.parquet_output import write_parquet
from graphfold.inference.places import Place, suffix_of
from graphfold.inference.prediction import Prediction, check_format, free_names, written_nodes
from graphfold.inference.predictor import Predictor, Unread


def predict_files(
    job: Job,
    output: Place | None = None,
    explain: bool = False,
    text_format: str | None = None,
) -> None:
    """Writes a prediction or a reason for each record of a job's inputs; see `predict_file`.

    Args:
        job: the model and the inputs.
        output: a file, or of several inputs a folder, which gets a file for each; text is an
            address; None for standard output.
        explain: whether to add what the parts of each graph contribute.
        text_format: "brackets", "conllu" or "parquet"; an output whose name ends in .parquet says
            the last itself.
    """
    if text_format is None and output is not None and suffix_of(output) == ".parquet":
        text_format = "parquet"
    options = {"explain": explain, "text_format": text_format}

    def ending(predictor: Predictor) -> str | None:
        if text_format is not None:
            return ".parquet" if text_format == "parquet" else None  # that of the input
        return ".csv" if predictor.adapter.reads_tables else ".jsonl"

    joins = text_format != "parquet"
    apply_to_files(job, output, partial(_write, options), "predicted", ending, options, joins)


def _write(
    options: Mapping[str, Any],
    predictor: Predictor,
    path: Path,
    file: Path | None,
    headers: list[str] | None,
) -> tuple[int, int]:
    """`predict_file`, of which other processes can be told."""
    return predict_file(predictor, path, file, **options, headers=headers)


def predict_file(
    predictor: Predictor,
    path: Path,
    output: Path | None,
    explain: bool = False,
    text_format: str | None = None,
    headers: list[str] | None = None,
) -> tuple[int, int]:
    """Writes a prediction or a reason for each record of a file.

    A table is written for a table, JSON lines for anything else.

    Args:
        predictor: the model.
        path: the file.
        output: where to write, whole or not at all; None for standard output.
        explain: whether to add what the parts of each graph contribute.
        text_format: "brackets" or "conllu" gives trees back as they came, with predictions;
            "parquet" gives a table of fixed types, see `write_parquet`.
        headers: those of the tables that were written before to the same output, to which this one
            is joined; its own is added. None for an output of its own.

    Returns:
        How many records were predicted, and how many could not be read.

    Raises:
        ConfigError: if the model cannot be explained, or has no predictions of that format.
        DataError: if the file cannot be used as a whole.
    """
    require_input(path)
    lines = _csv_lines if predictor.adapter.reads_tables else _json_lines
    if text_format is not None:
        if explain:
            raise ConfigError(
                f"--format {text_format} has no place for contributions. Leave --explain out."
            )
        if text_format == "parquet":
            if output is None:
                raise ConfigError("--format parquet is for files. Name one with --output.")
            return write_parquet(predictor, path, output)
        check_format(text_format, predictor.adapter, predictor.trained.head)
        lines = _texts
    explainer = Explainer(predictor.trained) if explain else None
    return write_answers(
        predictor,
        path,
        output,
        lambda skip: _with_one_header(
            lines(Answers(predictor, path, explainer, skip)), path, headers
        ),
        "predicting",
        {"explain": explain, "format": text_format},
    )


def _with_one_header(
    lines: Iterator[tuple[str, bool | None]], path: Path, headers: list[str] | None
) -> Iterator[tuple[str, bool | None]]:
    """The lines of a table that is joined to others, whose header stands there already."""
    for text, is_bad in lines:
        if headers is not None and is_bad is None:
            if headers and text not in headers:
                raise ConfigError(
                    f"{path}: the columns are others than those of the table before, so they "
                    "cannot be one table. Name a folder with --output, which gets a file for each."
                )
            if headers:
                continue
            headers.append(text)
        yield text, is_bad


class Answers(NamedTuple):
    """Whatever is said of the records of a file.

    Args:
        predictor: the model.
        path: the file.
        explainer: says what parts contribute; None for predictions alone.
        skip: so many records at the beginning are answered already.
    """

    predictor: Predictor
    path: Path
    explainer: Explainer | None
    skip: int = 0

    def all(self) -> Iterator[tuple[Record, Prediction, Contributions | None]]:
        """Each record with its prediction, and the contributions to it, where there are any."""
        for record, found in self.predictor.walk(self.path, self._answer, self.skip):
            if isinstance(found, Unread):
                yield record, Prediction(*found), None
                continue
            prediction, contributions = found
            yield record, prediction, None if prediction.reason else contributions

    def _answer(self, dag: TypedDAG) -> Iterable[tuple[Prediction, Contributions | None]]:
        if self.explainer is not None:
            return zip(self.predictor.predict_graphs(dag), self.explainer.explain(dag), strict=True)
        return ((prediction, None) for prediction in self.predictor.predict_graphs(dag))


def _json_lines(answers: Answers) -> Iterator[tuple[str, bool | None]]:
    for _, prediction, contributions in answers.all():
        told = prediction.to_dict()
        if contributions is not None:
            reason = told.pop("reason")
            told |= {**contributions.to_dict(), "reason": reason}
        text = json.dumps(told, ensure_ascii=False, allow_nan=False)
        yield text + "\n", bool(prediction.reason)


def _texts(answers: Answers) -> Iterator[tuple[str, bool | None]]:
    """The records in their own format, with predictions."""
    adapter, head = answers.predictor.adapter, answers.predictor.trained.head
    for record, prediction, _ in answers.all():
        text = adapter.text_of(record)
        yield adapter.write_back(text, written_nodes(prediction, head)), bool(prediction.reason)


def _csv_lines(answers: Answers) -> Iterator[tuple[str, bool | None]]:
    """The input's columns, then the predictions, the contributions, and the reason."""
    predictor, explainer = answers.predictor, answers.explainer
    predicted = predictor.trained.head.table_columns
    explained = [] if explainer is None else explainer.columns
    has_header = answers.skip > 0
    for record, prediction, found in answers.all():
        if not has_header:
            names = free_names([*predicted, *explained, "reason"], record.columns)
            yield csv_line([*record.columns, *names]), None
            has_header = True
        shown = [""] * len(explained)
        if explainer is not None and found is not None:
            shown = [json.dumps(cell) for cell in explainer.cells(found)]
        values = _shown(prediction.cells(len(predicted)))
        cells = [*record.cells, *values, *shown, prediction.reason]
        yield csv_line(cells), bool(prediction.reason)


def _shown(cells: Sequence[Any]) -> list[Any]:
    """The cells as text has them: a list of the values of nodes is JSON."""
    return [json.dumps(c, ensure_ascii=False) if isinstance(c, list) else c for c in cells]
