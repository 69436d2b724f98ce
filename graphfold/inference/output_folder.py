"""OutputFolder: a file for each of several inputs, in one folder, which several jobs may share."""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphfold.continued import work_key
from graphfold.errors import ConfigError, DataError
from graphfold.files import is_stream
from graphfold.inference.inputs import Input
from graphfold.inference.places import (
    Place,
    below,
    identity,
    is_folder,
    made_here,
    read,
    size_of,
    suffix_of,
    write_note,
)

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
        folder: the folder, or its address; it is made if need be.
        inputs: the inputs, of all jobs.
        ending: that of the outputs, such as ".csv"; None for that of the input.
        done: what becomes of a record, for the table at the end.

    Attributes:
        names: the name of the output of each input, below the folder.
        outcomes: what became of those inputs that are done, for the table at the end.

    Raises:
        ConfigError: if two inputs would have one output, an output is an input, or the folder is no
            place for files.
    """

    def __init__(
        self, folder: Place, inputs: Sequence[Input], ending: str | None, done: str
    ) -> None:
        if _is_no_folder(folder):
            raise ConfigError(
                f"{folder}: several inputs are written into a folder, a file for each, and this is "
                "no folder or has the ending of a file. Name a folder with --output."
            )
        self.folder = folder
        self.done = done
        self.names = {given: _output_name(given, ending) for given in inputs}
        self.outcomes: dict[Input, Outcome] = {}
        _refuse_clashes([(given, self.place(given)) for given in inputs])

    def place(self, given: Input) -> Place:
        """The place of the output of an input."""
        return below(self.folder, self.names[given])

    def absolute(self) -> OutputFolder:
        """The same for a process with another current folder, which has done nothing yet."""
        other = copy.copy(self)
        other.outcomes = {}
        if isinstance(self.folder, Path):
            other.folder = self.folder.absolute()
        names = self.names.items()
        other.names = {i._replace(path=i.path.absolute()): name for i, name in names}
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
        place, name = self.place(given), self.names[given]
        note = below(self.folder, Path(NOTES) / name.with_name(f"{name.name}.json"))
        key = work_key({**work, "machine": None})
        counts = _finished(note, place, key)
        if counts is not None:
            return Outcome(counts, was_there=True)
        if isinstance(place, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
        with made_here(place) as path:
            counts = write(path)
            size = path.stat().st_size
        facts = {"work": key, "bytes": size, "counts": counts}
        write_note(note, json.dumps(facts).encode())
        return Outcome(counts)

    def end(self) -> None:
        """Prints the table of counts; of one input, whether its output was there.

        Raises:
            DataError: if an input could not be used.
        """
        errors = [outcome.error for outcome in self.outcomes.values() if outcome.error is not None]
        if len(self.names) > 1:
            print(self._table(), file=sys.stderr)
        elif errors:
            raise errors[0]
        else:
            for given, outcome in self.outcomes.items():
                if outcome.was_there:
                    print(f"{self.place(given)}: was there", file=sys.stderr)
        if errors:
            raise DataError(
                f"{len(errors)} of {len(self.outcomes)} inputs cannot be used: "
                f"{errors[0].message} The others are written; the same command goes on with what "
                "is missing.",
                errors=errors,
            )

    def _table(self) -> str:
        rows = [(given, self.outcomes[given]) for given in self.names if given in self.outcomes]
        if len(rows) > MOST_ROWS:  # those that somebody may want to look into
            rows = [row for row in rows if row[1].counts.bad or row[1].error][:MOST_ROWS]
        names = [str(self.names[given]) for given, _ in rows]
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


def _is_no_folder(place: Place) -> bool:
    if isinstance(place, Path) and (is_stream(place) or place.is_file()):
        return True
    return bool(suffix_of(place)) and not is_folder(place)


def _finished(note: Place, output: Place, key: str) -> Counts | None:
    """The counts of an output that a work has finished before; None if there is none."""
    try:
        facts = json.loads(read(note))
        is_whole = facts["work"] == key and facts["bytes"] == size_of(output)
        good, bad, changed = map(int, facts["counts"])
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged
        return None
    return Counts(good, bad, changed) if is_whole else None


def _output_name(given: Input, ending: str | None) -> Path:
    name = given.name.with_suffix("") if given.name.suffix.lower() == ".gz" else given.name
    return name if ending is None else name.with_suffix(ending)


def _refuse_clashes(pairs: Sequence[tuple[Input, Place]]) -> None:
    counts = Counter(place for _, place in pairs)
    twice = next((place for place, count in counts.items() if count > 1), None)
    if twice is not None:
        first, second, *_ = [given.shown for given, place in pairs if place == twice]
        raise ConfigError(
            f"{first} and {second} would both be written to {twice}. Rename one, or give them to "
            "two commands."
        )
    inputs = {identity(given.address or given.path) for given, _ in pairs}
    for _, place in pairs:
        if identity(place) in inputs:
            raise ConfigError(
                f"{place} is an input, and would be replaced by its output. Name another folder."
            )
