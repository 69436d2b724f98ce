"""`graphfold predict`: a run applied to files, one output for each, whole or not at all."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from graphfold.datasets.features.feature_spec import UnknownValues
from graphfold.errors import ConfigError, DataError
from graphfold.inference.answers import Answers, Embeddings, Predictions
from graphfold.inference.explain import Explainer
from graphfold.inference.input_files import Input, find_inputs, readable, shown_name
from graphfold.inference.prediction import check_format
from graphfold.inference.predictor import Predictor, load
from graphfold.inference.writers import (
    Writer,
    write_csv,
    write_json,
    write_npy,
    write_parquet,
    write_records,
)
from graphfold.layers.model import cells_as_they_are
from graphfold.training.config.overrides import in_words_of_set, parse_settings
from graphfold.training.process.process import prepare_process

#: Bytes up to which the cells are not compiled for a file, which takes longer than it saves there:
#: one and a half seconds, most of them to load torch's compiler. So many are ten thousand SMILES,
#: or two thousand trees of SST.
SMALL_FILE = 500_000


class Task(NamedTuple):
    """Content and format of an output.

    Args:
        explain: also what the parts of a graph contribute.
        embeddings: the vector that the head reads, in place of predictions.
        form: "csv", "jsonl", "parquet", "npy", or a text format such as "brackets"; None for what
            the name of the output says, else a table for a table and JSON lines for anything else.
    """

    explain: bool = False
    embeddings: bool = False
    form: str | None = None

    def form_of(self, predictor: Predictor, output: Path | None) -> str:
        """The format of an output.

        Raises:
            ConfigError: if there is no such format of what is written.
        """
        what, forms = "predictions for what is no table", ["jsonl"]
        if self.embeddings:
            what, forms = "embeddings", ["csv", "parquet", "npy"]
        elif predictor.adapter.reads_tables:
            what, forms = "predictions for tables", ["csv", "parquet"]
        suffix = "" if output is None else output.suffix.lower().removeprefix(".")
        form = self.form or (suffix if suffix in ("parquet", "npy") else forms[0])
        if form not in WRITERS and not self.embeddings:
            check_format(form, predictor.adapter, predictor.trained.head)
        elif form not in forms:
            raise ConfigError(f"{what} are written as {' or '.join(forms)}, not as {form}.")
        if self.explain and form not in ("csv", "jsonl"):
            raise ConfigError(f"{form} has no place for contributions. Leave --explain out.")
        return form

    def answers(self, predictor: Predictor, path: Path) -> Answers:
        """The answers to the records of a file."""
        if self.embeddings:
            return Embeddings(predictor, path)
        return Predictions(predictor, path, Explainer(predictor.trained) if self.explain else None)


#: Format -> its writer; every other format is that of the records.
WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "jsonl": write_json,
    "parquet": write_parquet,
    "npy": write_npy,
}


class Counts(NamedTuple):
    """Records with an answer, and without."""

    good: int = 0
    bad: int = 0


@contextmanager
def command_predictor(
    run: Path, settings: Sequence[str] = (), trust: Collection[str] = ()
) -> Iterator[Predictor]:
    """The predictor of a command, with the threads of its run.

    Errors within speak of --set; at the end it is said which values the model has not learnt.

    Args:
        run: a run folder or a checkpoint file.
        settings: KEY=VALUE of the config group `data` that differ from the run's.
        trust: third-party packages that may be imported.
    """
    with in_words_of_set():
        predictor = load(run, trust, **parse_settings(settings))
        prepare_process(predictor.trained.config.threads)
        predictor.unknown = UnknownValues(predictor.trained.spec)
        yield predictor
    predictor.unknown.warn()


def say_counts(predictor: Predictor, counts: Counts, done: str, name: str) -> None:
    """Prints how many records were done.

    Raises:
        DataError: if not one record could be read.
    """
    told = f"{counts.good} {done}, {counts.bad} could not be read (see their reason)"
    print(told, file=sys.stderr)
    if predictor.num_changed:
        print(f"{predictor.num_changed} changed before reading", file=sys.stderr)
    if counts.bad and not counts.good:
        raise DataError(
            f"{name}: not one record could be read with the run's adapter; the reason is beside "
            "each. Give a file of the format that the run was trained on, or say with --set how to "
            "read it."
        )


def predict_files(
    predictor: Predictor,
    words: Sequence[Path],
    output: Path | None,
    task: Task,
    shard: tuple[int, int] | None = None,
) -> None:
    """Writes an answer or a reason for each record of some inputs.

    Args:
        predictor: the model.
        words: files, patterns and folders; `-` for standard input.
        output: of one file the file to write, None for standard output; else a folder, which gets
            a file for each input. Those that are there are passed over.
        task: what is written.
        shard: (I, N) takes every N-th input, from the I-th on; None takes all.

    Raises:
        ConfigError: if several inputs have no folder.
        DataError: if not one record can be read, or an input cannot be used; the others are
            written.
    """
    inputs = find_inputs(words, predictor.adapter)
    is_one = [given.path for given in inputs] == [word.expanduser() for word in words[:1]]
    if is_one and shard is None and not (output is not None and output.is_dir()):
        counts = write_file(predictor, inputs[0].path, output, task)
    else:
        counts = _write_folder(predictor, inputs, output, task, shard or (1, 1))
    name = ", ".join(shown_name(given.path) for given in inputs[:10])
    say_counts(predictor, counts, "embedded" if task.embeddings else "predicted", name)


def _write_folder(
    predictor: Predictor,
    inputs: Sequence[Input],
    folder: Path | None,
    task: Task,
    shard: tuple[int, int],
) -> Counts:
    """Writes a file for each input of a share, but for those that are there."""
    number, count = shard
    outputs = _output_names(predictor, inputs, _made_folder(folder), task)
    done, errors = [Counts()], list[DataError]()
    for given, output in [*outputs.items()][number - 1 :: count]:
        if output.exists():
            print(f"{output}: is there, and passed over", file=sys.stderr)
            continue
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            done.append(write_file(predictor, given.path, output, task))
        except DataError as error:
            print(f"{output}: not written: {error.message}", file=sys.stderr)
            errors.append(error)
    if errors:
        raise DataError(
            f"{len(errors)} of {len(inputs)} inputs cannot be used: {errors[0].message} The others "
            "are written; the same command goes on with what is missing."
        )
    return Counts(*map(sum, zip(*done, strict=True)))


def _made_folder(folder: Path | None) -> Path:
    if folder is None or folder.suffix or (folder.exists() and not folder.is_dir()):
        raise ConfigError(
            f"several inputs are written into a folder, a file for each, and {folder} is none. "
            "Name one with --output."
        )
    folder.mkdir(exist_ok=True)
    return folder


def _output_names(
    predictor: Predictor, inputs: Sequence[Input], folder: Path, task: Task
) -> dict[Input, Path]:
    """The output of each input, in its place within what was given.

    Raises:
        ConfigError: if two inputs would have one output, or an output is an input.
    """
    form = task.form_of(predictor, None)
    names = {}
    for given in inputs:
        name = given.name.with_suffix("") if given.name.suffix.lower() == ".gz" else given.name
        names[given] = folder / (name.with_suffix(f".{form}") if form in WRITERS else name)
    twice = [output for output, times in Counter(names.values()).items() if times > 1]
    own = {given.path.resolve() for given in inputs}
    lost = [output for output in names.values() if output.resolve() in own]
    for output in [*twice, *lost][:1]:
        raise ConfigError(
            f"{output} would be the output of two inputs, or is an input itself. Rename an input, "
            "or name another folder."
        )
    return names


def write_file(predictor: Predictor, given: Path, output: Path | None, task: Task) -> Counts:
    """Writes an answer or a reason for each record of one input.

    Args:
        predictor: the model.
        given: the file; `-` is standard input.
        output: where to write, whole or not at all; None for standard output.
        task: what is written.

    Raises:
        ConfigError: if what is asked for has no place in the format of the output.
        DataError: if the file cannot be used as a whole.
    """
    form = task.form_of(predictor, output)
    with readable(given) as path, quick_for_small(predictor, path):
        answers = task.answers(predictor, path)
        WRITERS.get(form, write_records)(output, answers)
    return Counts(answers.good, answers.bad)


def quick_for_small(predictor: Predictor, path: Path) -> AbstractContextManager[None]:
    """Leaves the cells as they are for a small file."""
    is_small = path.is_file() and path.stat().st_size < SMALL_FILE
    return cells_as_they_are(predictor.trained.model) if is_small else nullcontext()
