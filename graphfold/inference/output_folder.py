"""OutputFolder: a file for each of several inputs, in one folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfold.continued import remove_note, replace_note, work_key
from graphfold.errors import ConfigError
from graphfold.files import is_stream
from graphfold.inference.inputs import Input

#: The file in the folder that says which outputs are whole, while there are others to come.
NOTE = "finished.part.json"

#: Good records, bad ones, and those that were changed before reading.
Counts = tuple[int, int, int]


class OutputFolder:
    """The outputs of several inputs.

    Broken off, the same command goes on with the first output that is not whole.

    Args:
        folder: the folder; it is made if need be.
        inputs: the inputs.
        ending: that of the outputs, such as ".csv"; None for that of the input.

    Attributes:
        paths: the output of each input.

    Raises:
        ConfigError: if two inputs would have one output, an output is an input, or the folder is no
            place for files.
    """

    def __init__(self, folder: Path, inputs: Sequence[Input], ending: str | None) -> None:
        if is_stream(folder) or folder.is_file() or (folder.suffix and not folder.is_dir()):
            raise ConfigError(
                f"{folder}: several inputs are written into a folder, a file for each, and this is "
                "no folder or has the ending of a file. Name a folder with --output."
            )
        self.folder = folder
        pairs = [(given, folder / _output_name(given, ending)) for given in inputs]
        _refuse_clashes(pairs)
        self.paths = dict(pairs)
        self._finished: dict[str, Any] = self._read()

    def finished(self, given: Input, work: Mapping[str, Any]) -> Counts | None:
        """The counts of an output that the same work has finished before; None if there is none."""
        match self._finished.get(str(self.paths[given])):
            case {"work": key, "counts": [int(good), int(bad), int(changed)]}:
                is_whole = key == work_key(work) and self.paths[given].is_file()
                return (good, bad, changed) if is_whole else None
        return None  # there is no note, or it is damaged

    def write(
        self, given: Input, work: Mapping[str, Any], write: Callable[[Path], Counts]
    ) -> Counts:
        """Writes the output of an input, and notes that it is whole."""
        path = self.paths[given]
        path.parent.mkdir(parents=True, exist_ok=True)
        counts = write(path)
        self._finished[str(path)] = {"work": work_key(work), "counts": counts}
        replace_note(self.folder / NOTE, json.dumps(self._finished).encode())
        return counts

    def end(self) -> None:
        """Takes the note away when all outputs are whole."""
        remove_note(self.folder / NOTE)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / NOTE).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


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
