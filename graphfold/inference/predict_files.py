"""`graphfold predict`: applies a run to files and writes a complete output for each."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from graphfold.datasets.features.feature_spec import UnknownValues
from graphfold.errors import ConfigError, DataError
from graphfold.inference.answers import Answers
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
from graphfold.layers.model import eager_cells
from graphfold.training.config.overrides import parse_settings, suggest_set_flags
from graphfold.training.process.process import prepare_process

#: Files of fewer bytes (ten thousand SMILES, two thousand trees of SST) are predicted without
#: compiling the cells: loading torch's compiler takes longer than it saves.
SMALL_FILE = 500_000


class Task(NamedTuple):
    """Content and format of an output.

    Args:
        explain: also write the contributions of the parts of a graph.
        embeddings: write the vectors that the head reads, in place of predictions.
        form: "csv", "jsonl", "parquet", "npy", or a text format such as "brackets"; None for the
            suffix of the output, else a table for a table and JSON lines for anything else.
    """

    explain: bool = False
    embeddings: bool = False
    form: str | None = None

    def form_of(self, predictor: Predictor, output: Path | None) -> str:
        """The format of an output.

        Raises:
            ConfigError: if the content cannot be written in this format.
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

    Errors within name options by --set; at the end a warning lists values unknown to the model.

    Args:
        run: a run folder or a checkpoint file.
        settings: KEY=VALUE of the config group `data` that differ from the run's.
        trust: third-party packages that may be imported.
    """
    with suggest_set_flags():
        predictor = load(run, trust, **parse_settings(settings))
        prepare_process(predictor.trained.config.threads)
        predictor.unknown = UnknownValues(predictor.trained.spec)
        yield predictor
    predictor.unknown.warn()


def say_counts(predictor: Predictor, counts: Counts, done: str, name: str) -> None:
    """Prints the number of records.

    Raises:
        DataError: if not one record could be read.
    """
    print(
        f"{counts.good} {done}, {counts.bad} could not be read (see their reason)", file=sys.stderr
    )
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
        output: the output of one file, None for standard output; of several a folder for a file
            each. Existing files are passed over.
        task: content and format of the output.
        shard: (I, N) takes every N-th input, from the I-th on; None takes all.

    Raises:
        ConfigError: if several inputs have no folder.
        DataError: if not one record can be read, or an input cannot be used; the others are
            written.
    """
    inputs = find_inputs(words, predictor.adapter)
    is_one = [source.path for source in inputs] == [word.expanduser() for word in words[:1]]
    if is_one and shard is None and not (output is not None and output.is_dir()):
        counts = write_file(predictor, inputs[0].path, output, task)
    else:
        counts = _write_folder(predictor, inputs, output, task, shard or (1, 1))
    name = ", ".join(shown_name(source.path) for source in inputs[:10])
    say_counts(predictor, counts, "embedded" if task.embeddings else "predicted", name)


def _write_folder(
    predictor: Predictor,
    inputs: Sequence[Input],
    folder: Path | None,
    task: Task,
    shard: tuple[int, int],
) -> Counts:
    """Writes a file for each input of a shard, unless it exists."""
    if folder is None or folder.suffix or (folder.exists() and not folder.is_dir()):
        fault = "--output is missing" if folder is None else f"{folder} is no folder"
        raise ConfigError(
            f"several inputs are written into a folder, a file for each, but {fault}. Name "
            "one with --output."
        )
    folder.mkdir(exist_ok=True)
    outputs = _output_names(predictor, inputs, folder, task)
    done, errors = [Counts()], list[DataError]()
    for source, output in [*outputs.items()][shard[0] - 1 :: shard[1]]:
        if output.exists():
            print(f"{output}: is there, and passed over", file=sys.stderr)
            continue
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            done.append(write_file(predictor, source.path, output, task))
        except DataError as error:
            print(f"{output}: not written: {error.message}", file=sys.stderr)
            errors.append(error)
    if errors:
        raise DataError(
            f"{len(errors)} of {len(inputs)} inputs cannot be used: {errors[0].message} The others "
            "are written; the same command goes on with what is missing."
        )
    return Counts(*map(sum, zip(*done, strict=True)))


def _output_names(
    predictor: Predictor, inputs: Sequence[Input], folder: Path, task: Task
) -> dict[Input, Path]:
    """The output of each input, under its name in the folder.

    Raises:
        ConfigError: if two inputs would have one output, or an output is an input.
    """
    form = task.form_of(predictor, None)
    names: dict[Input, Path] = {}
    paths = {source.path.resolve() for source in inputs}
    for source in inputs:
        name = source.name.with_suffix("") if source.name.suffix.lower() == ".gz" else source.name
        output = folder / (name.with_suffix(f".{form}") if form in WRITERS else name)
        if output.resolve() in paths:
            raise ConfigError(
                f"{output} would be the output of two inputs, or is an input itself. Rename an "
                "input, or name another folder."
            )
        paths.add(output.resolve())
        names[source] = output
    return names


def write_file(predictor: Predictor, source: Path, output: Path | None, task: Task) -> Counts:
    """Writes an answer or a reason for each record of one input.

    Args:
        predictor: the model.
        source: the file; `-` is standard input.
        output: the file to write, whole or not at all; None for standard output.
        task: content and format of the output.

    Raises:
        ConfigError: if the content cannot be written in the format of the output.
        DataError: if the file cannot be used as a whole.
    """
    form = task.form_of(predictor, output)
    with readable(source) as path, quick_for_small(predictor, path):
        answers = Answers(predictor, path, task.embeddings, task.explain)
        WRITERS.get(form, write_records)(output, answers)
    return Counts(answers.good, answers.bad)


def quick_for_small(predictor: Predictor, path: Path) -> AbstractContextManager[None]:
    """A context in which cells are not compiled, if the file is small."""
    is_small = path.is_file() and path.stat().st_size < SMALL_FILE
    return eager_cells(predictor.trained.model) if is_small else nullcontext()
