"""OutputFolder: a file for each of several inputs, in one folder, which several jobs may share."""

from __future__ import annotations

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

    good: int
    bad: int
    changed: int


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
        self._results: dict[str, tuple[Counts, str]] = {}  # output -> what the table says
        self._failures: list[DataError] = []

    def write(
        self, given: Input, work: Mapping[str, Any], write: Callable[[Path], Counts]
    ) -> Counts:
        """The counts of an output, which is written unless the same work has written it before.

        Args:
            given: the input.
            work: all that the content of the output depends on.
            write: writes it, whole or not at all.
        """
        path = self.paths[given]
        name = path.relative_to(self.folder)
        note = self.folder / NOTES / f"{name}.json"
        counts = _finished(note, path, work_key(work))
        remark = "was there"
        if counts is None:
            for place in (path, note):
                place.parent.mkdir(parents=True, exist_ok=True)
            counts, remark = write(path), ""
            facts = {"work": work_key(work), "bytes": path.stat().st_size, "counts": counts}
            replace_note(note, json.dumps(facts).encode())
        self._results[str(name)] = counts, remark
        return counts

    def fail(self, given: Input, error: DataError) -> None:
        """Keeps in mind that an input cannot be used as a whole."""
        name = str(self.paths[given].relative_to(self.folder))
        self._results[name] = Counts(0, 0, 0), f"not written: {error.message}"
        self._failures.append(error)

    def end(self) -> None:
        """Prints the table of counts.

        Raises:
            DataError: if an input could not be used.
        """
        print(self._table(), file=sys.stderr)
        if self._failures:
            raise DataError(
                f"{len(self._failures)} of {len(self._results)} inputs cannot be used: "
                f"{self._failures[0].message} The others are written; the same command goes on "
                "with what is missing.",
                failures=self._failures,
            )

    def _table(self) -> str:
        rows = [*self._results.items()]
        if len(rows) > MOST_ROWS:  # those that somebody may want to look into
            rows = [row for row in rows if row[1][0].bad or row[1][1].startswith("not")][:MOST_ROWS]
        width = max(len(str(self.folder)), *(len(name) for name, _ in rows), 0)
        lines = [f"{self.folder!s:<{width}}{self.done:>14}{'not read':>12}"]
        for name, (counts, remark) in rows:
            line = f"{name:<{width}}{counts.good:>14,}{counts.bad:>12,}  {remark}"
            lines.append(line.rstrip())
        if len(self._results) > len(rows):
            lines.append(f"and {len(self._results) - len(rows):,} more")
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
