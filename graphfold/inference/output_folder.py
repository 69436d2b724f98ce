"""OutputFolder: a file for each of several inputs, in one folder, which several jobs may share."""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphfold.continued import replace_note, work_key
from graphfold.errors import ConfigError, DataError
from graphfold.files import is_stream
from graphfold.inference.inputs import Input

#: The folder of notes, hidden from all that read the folder of outputs as a data set. Each output
#: that is whole has one there, with what it was made of.
NOTES = ".finished"

#: Outputs of which the table at the end has a row.
MOST_ROWS = 50


class Counts(NamedTuple):
    """Records of an input: good ones, bad ones, and those that were changed before reading."""

    good: int = 0
    bad: int = 0
    changed: int = 0


class Outcome(NamedTuple):
    """The result of an input.

    Args:
        counts: its records.
        was_there: whether its output was there before.
        error: why it cannot be used as a whole, if so.
    """

    counts: Counts = Counts()
    was_there: bool = False
    error: DataError | None = None


class OutputFolder:
    """The outputs of several inputs, each there as a whole or not at all.

    Given again, the same command makes only what is not there yet, and what was made of another
    content, model or option. An input that cannot be used as a whole does not keep the others from
    being written. Jobs that share the inputs may write to the folder at the same time.

    Args:
        folder: the folder; it is made if need be.
        inputs: the inputs, of all jobs.
        ending: that of the outputs, such as ".csv"; None for that of the input.
        done: what becomes of a record, for the table at the end.

    Attributes:
        paths: the output of each input.
        outcomes: what became of those inputs that are done, for the table at the end.

    Raises:
        ConfigError: if two inputs would have one output, an output is an input, or the folder is no
            place for files.
    """

    def __init__(
        self, folder: Path, inputs: Sequence[Input], ending: str | None, done: str
    ) -> None:
        if is_stream(folder) or folder.is_file() or (folder.suffix and not folder.is_dir()):
            raise ConfigError(
                f"{folder}: several inputs are written into a folder, a file for each, and this is "
                "no folder or has the ending of a file. Name a folder with --output."
            )
        self.folder = folder
        self.done = done
        pairs = [(given, folder / _output_name(given, ending)) for given in inputs]
        _refuse_clashes(pairs)
        self.paths = dict(pairs)
        self.outcomes: dict[Input, Outcome] = {}

    def absolute(self) -> OutputFolder:
        """The same for a process with another current folder, which has done nothing yet."""
        other = copy.copy(self)
        other.folder, other.outcomes = self.folder.absolute(), {}
        pairs = self.paths.items()
        other.paths = {i._replace(path=i.path.absolute()): o.absolute() for i, o in pairs}
        return other

    def write(
        self, given: Input, work: Mapping[str, Any], write: Callable[[Path], Counts]
    ) -> Outcome:
        """Writes the output of an input, unless the same work has written it before.

        Args:
            given: the input.
            work: all that the content of the output depends on. Of the machine only last digits do,
                so an output of another one is as good.
            write: writes it, whole or not at all.
        """
        path = self.paths[given]
        note = self.folder / NOTES / f"{path.relative_to(self.folder)}.json"
        key = work_key({**work, "machine": None})
        counts = _finished(note, path, key)
        if counts is not None:
            return Outcome(counts, was_there=True)
        for place in (path, note):
            place.parent.mkdir(parents=True, exist_ok=True)
        counts = write(path)
        facts = {"work": key, "bytes": path.stat().st_size, "counts": counts}
        replace_note(note, json.dumps(facts).encode())
        return Outcome(counts)

    def end(self) -> None:
        """Prints the table of counts; of one input, whether its output was there.

        Raises:
            DataError: if an input could not be used.
        """
        errors = [outcome.error for outcome in self.outcomes.values() if outcome.error is not None]
        if len(self.paths) > 1:
            print(self._table(), file=sys.stderr)
        elif errors:
            raise errors[0]
        else:
            for given, outcome in self.outcomes.items():
                if outcome.was_there:
                    print(f"{self.paths[given]}: was there", file=sys.stderr)
        if errors:
            raise DataError(
                f"{len(errors)} of {len(self.outcomes)} inputs cannot be used: "
                f"{errors[0].message} The others are written; the same command goes on with what "
                "is missing.",
                errors=errors,
            )

    def _table(self) -> str:
        rows = [(given, self.outcomes[given]) for given in self.paths if given in self.outcomes]
        if len(rows) > MOST_ROWS:  # those that somebody may want to look into
            rows = [row for row in rows if row[1].counts.bad or row[1].error][:MOST_ROWS]
        names = [str(self.paths[given].relative_to(self.folder)) for given, _ in rows]
        width = max(map(len, [str(self.folder), *names]))
        lines = [f"{self.folder!s:<{width}}{self.done:>14}{'not read':>12}"]
        for name, (_, (counts, was_there, error)) in zip(names, rows, strict=True):
            remark = "was there" if was_there else ""
            if error is not None:
                remark = f"not written: {error.message}"
            line = f"{name:<{width}}{counts.good:>14,}{counts.bad:>12,}  {remark}"
            lines.append(line.rstrip())
        if len(self.outcomes) > len(rows):
            lines.append(f"and {len(self.outcomes) - len(rows):,} more")
        return "\n".join(lines)


def _finished(note: Path, output: Path, key: str) -> Counts | None:
    """The counts of an output that a work has finished before; None if there is none."""
    try:
        facts = json.loads(note.read_bytes())
        is_whole = facts["work"] == key and facts["bytes"] == output.stat().st_size
        good, bad, changed = map(int, facts["counts"])
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
        return None
    return Counts(good, bad, changed) if is_whole else None


def _output_name(given: Input, ending: str | None) -> Path:
    name = given.name.with_suffix("") if given.name.suffix.lower() == ".gz" else given.name
    return name if ending is None else name.with_suffix(ending)


def _refuse_clashes(pairs: Sequence[tuple[Input, Path]]) -> None:
    counts = Counter(path for _, path in pairs)
    twice = next((path for path, count in counts.items() if count > 1), None)
    if twice is not None:
        first, second, *_ = [given.shown for given, path in pairs if path == twice]
        raise ConfigError(
            f"{first} and {second} would both be written to {twice}. Rename one, or give them to "
            "two commands."
        )
    inputs = {given.path.resolve() for given, _ in pairs}
    for _, path in pairs:
        if path.resolve() in inputs:
            raise ConfigError(
                f"{path} is an input, and would be replaced by its output. Name another folder."
            )
