"""Prediction on files: as many records out as in, in the same order, in constant memory."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import torch

from graphfold.continued import Part, continued
from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, Record
from graphfold.datasets.features.feature_spec import UnknownValues
from graphfold.datasets.storage.fingerprint import content_hash
from graphfold.errors import ConfigError, DataError
from graphfold.files import check_output, is_stream, open_stream, whole_file
from graphfold.inference.explanation.explain import Contributions, Drawings, Explainer
from graphfold.inference.inputs import (
    Input,
    find_input,
    find_inputs,
    is_one_file,
    readable,
)
from graphfold.inference.output_folder import Counts, OutputFolder
from graphfold.inference.prediction import Prediction, check_format, free_names, written_nodes
from graphfold.inference.predictor import Predictor, Unread, load
from graphfold.layers.model import cells_as_they_are
from graphfold.progress import shown
from graphfold.training.config.overrides import in_words_of_set, parse_settings
from graphfold.training.process.process import prepare_process
from graphfold.training.run.trained import TrainedModel

#: Writes the results for a file of records; returns how many records were good, and bad.
Write: TypeAlias = Callable[[Path], tuple[int, int]]

#: Calls that with the file of an input.
Read: TypeAlias = Callable[[Write], tuple[int, int]]

#: Writes the results for an input.
ToFile: TypeAlias = Callable[[Input, Read], tuple[int, int]]

#: Makes that of a predictor and all inputs.
Begin: TypeAlias = Callable[[Predictor, Sequence[Input]], AbstractContextManager[ToFile]]

#: Bytes up to which the cells are not compiled for a file, which takes longer than it saves there:
#: one and a half seconds, most of them to load torch's compiler. So many are ten thousand SMILES,
#: or two thousand trees of SST.
SMALL_FILE = 500_000


@dataclass(frozen=True)
class Job:
    """A run that is applied to every record of its inputs.

    Args:
        run: a run folder or a checkpoint file.
        inputs: files, patterns, folders, or `-` for standard input.
        takes_many: whether patterns and folders are looked into; otherwise there is one input.
        settings: KEY=VALUE of the config group `data` that differ from the run's.
        trust: third-party packages that may be imported.
        parser: see `graphfold.load`.
        input_format: the kind of table; None for what the name of each input says.
        shard: number and count of the jobs that share the inputs, this one and all: (3, 64). None
            if there is one.
    """

    run: Path
    inputs: Sequence[Path]
    takes_many: bool = False
    settings: Sequence[str] = ()
    trust: Collection[str] = ()
    parser: str | None = None
    input_format: str | None = None
    shard: tuple[int, int] | None = None

    def load(self) -> Predictor:
        """The run, ready to predict."""
        predictor = load(self.run, self.trust, self.parser, **parse_settings(self.settings))
        prepare_process(predictor.trained.config.threads)
        predictor.unknown = UnknownValues(predictor.trained.spec)
        return predictor

    def find_inputs(self, adapter: Adapter) -> list[Input]:
        """The inputs one by one."""
        if self.takes_many:
            return find_inputs(self.inputs, adapter)
        return [find_input(word) for word in self.inputs]

    def share(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Those of the inputs that are this job's: every so many, so that sizes are mixed.

        Raises:
            ConfigError: if there is one file, which cannot be shared.
        """
        if self.shard is None:
            return inputs
        number, count = self.shard
        if count > 1 and is_one_file(self.inputs, inputs):
            raise ConfigError(
                f"--shard {number}/{count} shares files among jobs, and {inputs[0].shown} is one "
                "file. Give several, a folder or a pattern, or leave --shard out."
            )
        share = inputs[number - 1 :: count]
        print(f"shard {number}/{count}: {len(share)} of {len(inputs)} inputs", file=sys.stderr)
        return share


def predict_files(
    job: Job,
    output: Path | None = None,
    explain: str | None = None,
    text_format: str | None = None,
) -> None:
    """Writes a prediction or a reason for each record of a job's inputs; see `predict_file`.

    Args:
        job: the model and the inputs.
        output: a file, or of several inputs a folder, which gets a file for each; None for standard
            output.
        explain: a name of `explain.METHODS`.
        text_format: "brackets" or "conllu".
    """
    options = {"explain": explain, "text_format": text_format}

    def write(
        predictor: Predictor, path: Path, file: Path | None, headers: list[str] | None
    ) -> tuple[int, int]:
        return predict_file(predictor, path, file, **options, headers=headers)

    def ending(predictor: Predictor) -> str | None:
        if text_format is not None:
            return None  # that of the input
        return ".csv" if predictor.adapter.reads_tables else ".jsonl"

    apply_to_files(job, output, write, "predicted", ending, options)


def apply_to_files(
    job: Job,
    output: Path | None,
    write: Callable[[Predictor, Path, Path | None, list[str] | None], tuple[int, int]],
    done: str,
    ending: Callable[[Predictor], str | None],
    options: Mapping[str, Any],
    joins: bool = True,
) -> None:
    """Applies a run to every record of its inputs, and writes to one output or into a folder.

    Args:
        job: the run and the inputs.
        output: a file, or of several inputs a folder, which gets a file for each; None for standard
            output.
        write: writes one output of one file, and counts; also given the headers of the tables that
            were written to the same output before, None where each has its own.
        done: what becomes of a record, for the messages.
        ending: the ending of the files in a folder; None for that of the input.
        options: what the outputs depend on, beside the run and the inputs.
        joins: whether several inputs may be written to one output.
    """
    if output is None or not output.is_dir():
        check_output(output)

    @contextmanager
    def begin(predictor: Predictor, inputs: Sequence[Input]) -> Iterator[ToFile]:
        is_folder = output is not None and (output.is_dir() or not is_one_file(job.inputs, inputs))
        if output is None or not is_folder:
            if len(inputs) > 1 and not joins:
                raise ConfigError(
                    f"{len(inputs)} inputs are not {done} into one file. Name a folder with "
                    "--output, which gets a file for each."
                )
            headers: list[str] = []
            yield lambda _, read: read(lambda path: write(predictor, path, output, headers))
            return
        folder = OutputFolder(output, inputs, ending(predictor), done)

        def write_one(given: Input, path: Path) -> tuple[int, int]:
            before = predictor.num_changed

            def to_file(file: Path) -> Counts:
                counts = write(predictor, path, file, None)
                return Counts(*counts, predictor.num_changed - before)

            counts = folder.write(given, work_of(predictor, path, options), to_file)
            predictor.num_changed = before + counts.changed
            return counts.good, counts.bad

        def write_or_fail(
            given: Input, read: Callable[[Write], tuple[int, int]]
        ) -> tuple[int, int]:
            try:
                return read(partial(write_one, given))
            except DataError as error:
                folder.fail(given, error)
                return 0, 0

        yield write_or_fail
        folder.end()

    apply(job, begin, done)


def apply(job: Job, begin: Begin, done: str) -> None:
    """Applies a run to every record of its share of the inputs, and prints how many there were.

    Args:
        job: the run and the inputs.
        begin: makes what writes the results.
        done: what becomes of a record, for the message at the end.

    Raises:
        DataError: if not one record can be read.
    """
    good = bad = 0
    with in_words_of_set():
        predictor = job.load()
        inputs = job.find_inputs(predictor.adapter)
        share = job.share(inputs)
        with begin(predictor, inputs) as to_file:
            for given in share:
                counts = to_file(given, partial(_read, job, predictor, given))
                good, bad = good + counts[0], bad + counts[1]
    if predictor.unknown is not None:
        predictor.unknown.warn()
    print(f"{good} {done}, {bad} could not be read (see their reason)", file=sys.stderr)
    if predictor.num_changed:
        print(f"{predictor.num_changed} changed before reading", file=sys.stderr)
    if bad and not good:
        raise _none_read(", ".join(given.shown for given in share[:10]))


def _read(job: Job, predictor: Predictor, given: Input, write: Write) -> tuple[int, int]:
    """The counts of what is written for one input; the cells are not compiled for a small one."""
    with readable(given, predictor.adapter, job.input_format) as path:
        is_small = path.is_file() and path.stat().st_size < SMALL_FILE
        with cells_as_they_are(predictor.trained.model) if is_small else nullcontext():
            return write(path)


def _none_read(names: str) -> DataError:
    return DataError(
        f"{names}: not one record could be read with the run's adapter; the reason is beside each. "
        "Give a file of the format that the run was trained on, or say with --set how to read it."
    )


def predict_file(
    predictor: Predictor,
    path: Path,
    output: Path | None,
    explain: str | None = None,
    text_format: str | None = None,
    headers: list[str] | None = None,
) -> tuple[int, int]:
    """Writes a prediction or a reason for each record of a file.

    With `explain` also what the parts of each graph contribute, and drawings of molecules in the
    folder `drawings_folder(output)`. A table is written for a table, JSON lines for anything else.

    Args:
        predictor: the model.
        path: the file.
        output: where to write, whole or not at all; None for standard output, without drawings.
        explain: a name of `explain.METHODS`.
        text_format: "brackets" or "conllu" gives trees back as they came, with predictions.
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
        if explain is not None:
            raise ConfigError(
                f"--format {text_format} has no place for contributions. Leave --explain out."
            )
        check_format(text_format, predictor.adapter, predictor.trained.head)
        lines = _texts
    explainer = None if explain is None else Explainer(predictor, explain)
    drawings = None if explainer is None or output is None else Drawings(output, explainer)
    return write_answers(
        predictor,
        path,
        output,
        lambda skip: _with_one_header(
            lines(Answers(predictor, path, explainer, drawings, skip)), path, headers
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


#: The texts of all records but the first so many, each with whether the record is a bad one; None
#: with a text that belongs to no record.
Lines: TypeAlias = Callable[[int], Iterator[tuple[str, bool | None]]]


def write_answers(
    predictor: Predictor,
    path: Path,
    output: Path | None,
    lines: Lines,
    doing: str,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """Writes a text for each record of a file, and shows how far it is.

    Into a file they are written whole or not at all. Broken off, the same work goes on from the
    last whole batch, so that every batch holds the records that it would have held: the output is
    that of unbroken work, byte for byte.

    Args:
        predictor: the model.
        path: the file of the records.
        output: the file to write, or a pipe or a device; None for standard output.
        lines: the texts of the records.
        doing: what is done, for the progress.
        options: what the texts depend on, beside the model and the file.

    Returns:
        How many records were good, and how many bad.
    """
    doing = f"{doing} {path.name}"
    predictor.choose_anew()
    if output is None or is_stream(output) or not path.exists() or is_stream(path):
        counts = [0, 0]
        with open_output(output) as file:
            for text, is_bad in shown(lines(0), doing, _is_record):
                file.write(text)
                if is_bad is not None:
                    counts[is_bad] += 1
        return counts[0], counts[1]
    with continued(output, work_of(predictor, path, options)) as part:
        counts = part.facts.setdefault("counts", [0, 0])
        before = predictor.num_changed
        predictor.num_changed += part.facts.get("changed", 0)
        _take_choices(predictor, part.facts)
        file = io.TextIOWrapper(
            part.file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True
        )
        for text, is_bad in shown(lines(part.records), doing, _is_record, done=part.records):
            file.write(text)
            if is_bad is not None:
                counts[is_bad] += 1
                _note_batch(predictor, part, sum(counts), predictor.num_changed - before)
        file.detach()
    return counts[0], counts[1]


def _is_record(line: tuple[str, bool | None]) -> bool:
    return line[1] is not None


def _note_batch(predictor: Predictor, part: Part, records: int, changed: int) -> None:
    if records % predictor.batch_size == 0:
        part.facts |= {"policy": predictor.policy, "share": predictor.share, "changed": changed}
        part.done(records)


def _take_choices(predictor: Predictor, facts: Mapping[str, Any]) -> None:
    """Computes as before: choices that the first batch made decide the last digits."""
    predictor.policy = facts.get("policy", predictor.policy)
    predictor.share = facts.get("share", predictor.share)


def work_of(predictor: Predictor, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that answers to the records of a file depend on, to the last digit."""
    return {
        "input": content_hash(predictor.adapter, path),
        "model": _model_hash(predictor.trained),
        "settings": {**predictor.settings, "batch_size": predictor.batch_size},
        "parser": predictor.parser_name,
        "options": dict(options),
        "versions": [version("graphfold"), torch.__version__],
        "machine": [torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()],
    }


def _model_hash(trained: TrainedModel) -> str:
    """The sha256 of a model as it is in memory: its file may be gone, or its weights changed."""
    checkpoint = trained.checkpoint
    facts = [checkpoint.config, checkpoint.spec, checkpoint.calibration]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, weight in sorted(trained.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def require_input(path: Path) -> None:
    """Raises DataError if there is no such file."""
    if not path.exists():
        raise DataError(f"{path}: no such file. Correct the path.", path=str(path))


class Answers(NamedTuple):
    """Whatever is said of the records of a file.

    Args:
        predictor: the model.
        path: the file.
        explainer: says what parts contribute; None for predictions alone.
        drawings: where molecules are drawn, if they are.
        skip: so many records at the beginning are answered already.
    """

    predictor: Predictor
    path: Path
    explainer: Explainer | None
    drawings: Drawings | None
    skip: int = 0

    def all(self) -> Iterator[tuple[Record, Prediction, Contributions | None]]:
        """Each record with its prediction, and the contributions to it, where there are any."""
        for record, found in self.predictor.walk(self.path, self._answer, self.skip):
            if isinstance(found, Unread):
                yield record, Prediction(*found), None
                continue
            prediction, contributions = found
            if prediction.reason:
                contributions = None
            elif self.drawings is not None and contributions is not None:
                self.drawings.draw(prediction.line, contributions)
            yield record, prediction, contributions

    def _answer(self, dag: TypedDAG) -> Iterable[tuple[Prediction, Contributions | None]]:
        if self.explainer is not None:
            return self.explainer.predict_graphs(dag)
        return ((prediction, None) for prediction in self.predictor.predict_graphs(dag))


def _json_lines(answers: Answers) -> Iterator[tuple[str, bool | None]]:
    for _, prediction, contributions in answers.all():
        told = prediction.to_dict()
        if contributions is not None:
            reason = told.pop("reason")
            told["base"] = contributions.base_to_dict()
            told |= {"contributions": contributions.to_dict(), "reason": reason}
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


def csv_line(cells: Sequence[Any]) -> str:
    """A line of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """A text file that is written whole or not at all; standard output for None.

    What is written to a pipe or a device goes there at once.

    Surrogates stand for bytes that are not UTF-8, as in `Adapter.text_of`.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="surrogateescape")
        yield sys.stdout
        return
    with open_stream(path) if is_stream(path) else whole_file(path) as file:
        text = io.TextIOWrapper(
            file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True
        )
        yield text
        text.flush()
        text.detach()
