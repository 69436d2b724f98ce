"""A run applied to files: all inputs, or one job's share of them; here, or on an engine."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from graphfold.datasets.adapter import Adapter
from graphfold.datasets.features.feature_spec import Key, UnknownCount, UnknownValues
from graphfold.datasets.storage.reading import available_cores, in_processes, start_method
from graphfold.errors import ConfigError, DataError, GraphfoldError
from graphfold.inference.inputs import Input, find_input, find_inputs, is_one_file, readable
from graphfold.inference.on_ray import on_ray
from graphfold.inference.output import work_of
from graphfold.inference.output_folder import Counts, Outcome, OutputFolder
from graphfold.inference.places import Place, check_place, is_folder, made_here
from graphfold.inference.predictor import Predictor, load
from graphfold.layers.model import cells_as_they_are
from graphfold.progress import shown
from graphfold.training.config.overrides import in_words_of_set, parse_settings
from graphfold.training.process.process import prepare_process

#: Bytes up to which the cells are not compiled for a file, which takes longer than it saves there:
#: one and a half seconds, most of them to load torch's compiler. So many are ten thousand SMILES,
#: or two thousand trees of SST.
SMALL_FILE = 500_000


#: Writes the output of a file, None for standard output, and counts the good and the bad records.
#: Also given the headers of the tables that were written to the same output before; None where
#: each has its own.
Writer: TypeAlias = Callable[[Predictor, Path, Path | None, list[str] | None], tuple[int, int]]

#: Does what is to be done for each of some inputs; gives the same counts, as they are done.
Answer: TypeAlias = Callable[[Sequence[Input]], Iterable[tuple[int, int]]]

#: Makes that of a predictor and the inputs of all jobs.
Begin: TypeAlias = Callable[[Predictor, Sequence[Input]], AbstractContextManager[Answer]]


@dataclass(frozen=True)
class Job:
    """A run that is applied to every record of its inputs.

    Args:
        run: a run folder or a checkpoint file.
        inputs: files, patterns, folders, or `-` for standard input; text is an address.
        takes_many: whether patterns and folders are looked into; otherwise there is one input.
        settings: KEY=VALUE of the config group `data` that differ from the run's.
        trust: third-party packages that may be imported.
        input_format: the kind of table; None for what the name of each input says.
        shard: number and count of the jobs that share the inputs, this one and all: (3, 64). None
            if there is one.
        engine: "ray" works on several inputs at once, see `on_ray`; None on one after the other.
        workers: on how many, for an engine; None for as many as there are cores.
    """

    run: Path
    inputs: Sequence[Place]
    takes_many: bool = False
    settings: Sequence[str] = ()
    trust: Collection[str] = ()
    input_format: str | None = None
    shard: tuple[int, int] | None = None
    engine: str | None = None
    workers: int | None = None

    def load(self) -> Predictor:
        """The run, ready to predict."""
        predictor = load(self.run, self.trust, **parse_settings(self.settings))
        prepare_process(predictor.trained.config.threads)
        predictor.unknown = UnknownValues(predictor.trained.spec)
        return predictor

    def find_inputs(self, adapter: Adapter) -> list[Input]:
        """The inputs one by one."""
        if self.takes_many:
            return find_inputs(self.inputs, adapter)
        return [find_input(Path(word)) for word in self.inputs]

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
        with begin(predictor, inputs) as answer:
            for counts in answer(share):
                good, bad = good + counts[0], bad + counts[1]
    if predictor.unknown is not None:
        predictor.unknown.warn()
    print(f"{good} {done}, {bad} could not be read (see their reason)", file=sys.stderr)
    if predictor.num_changed:
        print(f"{predictor.num_changed} changed before reading", file=sys.stderr)
    if bad and not good:
        raise _none_read(", ".join(given.shown for given in share[:10]))


def read_input(
    job: Job, predictor: Predictor, given: Input, write: Callable[[Path], tuple[int, int]]
) -> tuple[int, int]:
    """Writes something for the file of an input, and counts the good and the bad records.

    The cells are not compiled for a small one.
    """
    with readable(given, predictor.adapter, job.input_format) as path:
        is_small = path.is_file() and path.stat().st_size < SMALL_FILE
        with cells_as_they_are(predictor.trained.model) if is_small else nullcontext():
            return write(path)


def _none_read(names: str) -> DataError:
    return DataError(
        f"{names}: not one record could be read with the run's adapter; the reason is beside each. "
        "Give a file of the format that the run was trained on, or say with --set how to read it."
    )


def apply_to_files(
    job: Job,
    output: Place | None,
    write: Writer,
    done: str,
    ending: Callable[[Predictor], str | None],
    options: Mapping[str, Any],
    joins: bool = True,
) -> None:
    """Applies a run to every record of its inputs, and writes to one output or into a folder.

    Args:
        job: the run and the inputs.
        output: a file, or of several inputs a folder, which gets a file for each; text is an
            address; None for standard output.
        write: writes one output of one file.
        done: what becomes of a record, for the messages.
        ending: the ending of the files in a folder; None for that of the input.
        options: what the outputs depend on, beside the run and the inputs.
        joins: whether several inputs may be written to one output.
    """
    takes_folder = output is not None and is_folder(output)
    if not takes_folder:
        check_place(output)
    if job.workers is not None and job.engine is None:
        raise ConfigError(
            "--workers says how many an engine has. Add --engine ray, or leave it out."
        )

    @contextmanager
    def begin(predictor: Predictor, inputs: Sequence[Input]) -> Iterator[Answer]:
        if output is not None and (takes_folder or not is_one_file(job.inputs, inputs)):
            folder = OutputFolder(output, inputs, ending(predictor), done)
            yield partial(_FolderWork(job, folder, write, options).answer, predictor)
            folder.end()
            return
        if job.engine is not None:
            raise ConfigError(
                f"--engine {job.engine} works on several files at once, each with an output of its "
                "own. Name a folder with --output."
            )
        if len(inputs) > 1 and not joins:
            raise ConfigError(
                f"{len(inputs)} inputs are not {done} into one file. Name a folder with "
                "--output, which gets a file for each."
            )
        headers: list[str] = []
        with nullcontext() if output is None else made_here(output) as file:
            yield partial(
                map,
                lambda given: read_input(
                    job, predictor, given, lambda path: write(predictor, path, file, headers)
                ),
            )

    apply(job, begin, done)


@dataclass(frozen=True)
class _FolderWork:
    """The work on each of several inputs, whose outputs go into a folder."""

    job: Job
    folder: OutputFolder
    write: Writer
    options: Mapping[str, Any]

    def answer(self, predictor: Predictor, inputs: Sequence[Input]) -> Iterator[tuple[int, int]]:
        """Does it for some inputs; gives the counts of good and bad records as they are done."""
        outcomes: Iterable[tuple[Input, Outcome]] = (
            (given, self.do(predictor, given)) for given in inputs
        )
        workers = _processes(predictor, inputs)
        if self.job.engine is not None or workers > 1:
            outcomes = shown(
                self._elsewhere(predictor, inputs, workers),
                f"{len(inputs)} inputs",
                lambda done: done[1].counts.good + done[1].counts.bad,
            )
        for given, outcome in outcomes:
            self.folder.outcomes[given] = outcome
            yield outcome.counts.good, outcome.counts.bad

    def do(self, predictor: Predictor, given: Input) -> Outcome:
        """Writes the output of one input, unless it is there."""
        before, outcome = predictor.num_changed, Outcome()

        def write(path: Path) -> tuple[int, int]:
            def write_file(file: Path) -> Counts:
                counts = self.write(predictor, path, file, None)
                return Counts(*counts, predictor.num_changed - before)

            nonlocal outcome
            work = work_of(predictor, path, self.options)
            outcome = self.folder.write(given, work, write_file)
            return outcome.counts.good, outcome.counts.bad

        try:
            read_input(self.job, predictor, given, write)
        except DataError as error:
            return Outcome(error=error)
        predictor.num_changed = before + outcome.counts.changed
        return outcome

    def _elsewhere(
        self, predictor: Predictor, inputs: Sequence[Input], workers: int
    ) -> Iterator[tuple[Input, Outcome]]:
        """Does it in other processes: of an engine, else of this machine."""
        engine = self._on_ray if self.job.engine is not None else self._beside
        for given, result in engine(predictor, inputs, workers):
            if isinstance(result, DataError):
                yield given, Outcome(error=result)
                continue
            if isinstance(result, GraphfoldError):
                raise result
            outcome, unknown = result
            predictor.num_changed += outcome.counts.changed
            if predictor.unknown is not None:
                predictor.unknown.join(unknown)
            yield given, outcome

    def _on_ray(
        self, predictor: Predictor, inputs: Sequence[Input], _: int
    ) -> Iterator[tuple[Input, Any]]:
        """Results of Ray's processes, which may have another current folder."""
        if any(given.is_stream for given in inputs):
            raise ConfigError(
                f"--engine {self.job.engine} reads files, and an input is a pipe. Save it first."
            )
        job = replace(self.job, run=self.job.run.absolute())
        work = replace(self, job=job, folder=self.folder.absolute())
        by_path = {given.path.absolute(): given for given in inputs}
        there = [given._replace(path=path) for path, given in by_path.items()]
        for elsewhere, result in on_ray(work.in_worker, there, job.workers):
            yield by_path[elsewhere.path], result

    def _beside(
        self, predictor: Predictor, inputs: Sequence[Input], workers: int
    ) -> Iterator[tuple[Input, Any]]:
        """Results of processes that are forked of this one, and have its model."""
        key = id(self)
        calls = ((given, pickle.dumps((_in_fork, (key, given)))) for given in inputs)
        _FORKED[key] = self, predictor
        try:
            yield from in_processes(calls, workers, lambda given: given.path)
        finally:
            del _FORKED[key]

    def in_worker(self, given: Input) -> tuple[Outcome, Mapping[Key, UnknownCount]]:
        """Does it in a process of an engine."""
        return self.do_alone(_loaded(pickle.dumps(self.job)), given)

    def do_alone(
        self, predictor: Predictor, given: Input
    ) -> tuple[Outcome, Mapping[Key, UnknownCount]]:
        """Does it in one process of many; also counts the values that nobody has learnt."""
        predictor.num_workers = 0  # there is a process for each core
        predictor.unknown = UnknownValues(predictor.trained.spec)
        return self.do(predictor, given), predictor.unknown.counts


def _processes(predictor: Predictor, inputs: Sequence[Input]) -> int:
    """Number of processes that take one input each; 1 where all had better read the same one.

    The latter holds of few bytes, and where one input has more than half of them. A process that is
    forked computes on a CPU with one thread.
    """
    is_plain = predictor.trained.device.type == "cpu" and torch.get_num_threads() == 1
    if start_method() != "fork" or not is_plain:
        return 1
    sizes = [given.path.stat().st_size if given.path.is_file() else 0 for given in inputs]
    if sum(sizes) < 2 * SMALL_FILE or 2 * max(sizes) > sum(sizes):
        return 1
    cores = predictor.num_workers
    return min(len(inputs), available_cores() if cores is None else cores)


#: Work and its predictor, which the processes that are forked for it find here.
_FORKED: dict[int, tuple[_FolderWork, Predictor]] = {}


def _in_fork(key: int, given: Input) -> tuple[Outcome, Mapping[Key, UnknownCount]]:
    """Does the work on an input in a forked process."""
    work, predictor = _FORKED[key]
    return work.do_alone(predictor, given)


@lru_cache(1)
def _loaded(job: bytes) -> Predictor:
    """The predictor of a worker, which takes longer to load than many a file."""
    loaded: Predictor = pickle.loads(job).load()
    return loaded
