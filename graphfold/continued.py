"""Work on the records of a file that may be broken off, and that the same command goes on with.

What is done lies in `OUTPUT.part`, and `OUTPUT.part.json` says of how many records that is, and of
which work. Both are gone when the work is done. A file of that name without such a note is the
user's and stays.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from graphfold.errors import GraphfoldError
from graphfold.files import followed, locked, mode_of

#: Seconds between two notes of what is done: so much work is lost by kill -9, at most.
_PERIOD = 1.0


class Part:
    """The part of an output that is done.

    Args:
        path: `OUTPUT.part`.
        file: the same, open to append to.
        key: what identifies the work.
        state: what was noted of it last.

    Attributes:
        records: how many records are done.
        facts: plain values that the work wants to know again when it goes on.
    """

    def __init__(self, path: Path, file: BinaryIO, key: str, state: Mapping[str, Any]) -> None:
        self.path, self.file, self._key = path, file, key
        self.records: int = state["records"]
        self.facts: dict[str, Any] = dict(state["facts"])
        self._noted = time.monotonic()
        self._state = json.dumps({**state, "work": key})

    def done(self, records: int) -> None:
        """Keeps in mind that all records up to this number are written, and notes it in time."""
        self.records = records
        facts = {"work": self._key, "bytes": self.file.tell(), "facts": self.facts}
        self._state = json.dumps({**facts, "records": records})
        if time.monotonic() - self._noted >= _PERIOD:
            self.note()

    def note(self) -> None:
        """Writes down what is done; what was written after that is written again."""
        self.file.flush()
        os.fsync(self.file.fileno())
        replace_note(_note_of(self.path), self._state.encode())
        self._noted = time.monotonic()


@contextmanager
def continued(output: Path, work: Mapping[str, Any]) -> Iterator[Part]:
    """The part of an output that is done, nothing at first; it becomes the output in the end.

    After an error of the input nothing stays. After anything else that ends the work early (Ctrl-C,
    SIGTERM, no memory, kill -9) the part stays, and the same work goes on from it.

    Args:
        output: the file that is to be made.
        work: all that the content of the output depends on; another work begins anew.
    """
    output = followed(output)
    path, key = _part_of(output), work_key(work)
    with locked(path.with_name(f".{path.name}.lock"), lambda _: _refusal(path)):
        state = _read(path, key)
        replace_note(_note_of(path), json.dumps({**state, "work": key}).encode())
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            os.chmod(path, mode_of(output))
            file.truncate(state["bytes"])
            file.seek(0, os.SEEK_END)
            part = Part(path, file, key, state)
            try:
                yield part
                file.flush()
                os.fsync(file.fileno())
            except BaseException as error:
                _keep_or_remove(part, error)
                raise
        remove_note(_note_of(path))
        os.replace(path, output)  # before the lock goes, or another process would write to it


def _keep_or_remove(part: Part, error: BaseException) -> None:
    """Keeps what is done, unless that is nothing or the input is at fault."""
    if isinstance(error, GraphfoldError) or not part.records:
        part.path.unlink()
        remove_note(_note_of(part.path))
        return
    part.note()
    print(f"{part.path} keeps what is done; the same command goes on from it", file=sys.stderr)


def work_key(work: Mapping[str, Any]) -> str:
    """A short text that is equal for equal works."""
    return hashlib.sha256(json.dumps(work, sort_keys=True, default=str).encode()).hexdigest()


def replace_note(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; what kill -9 leaves of it is replaced the next time."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def remove_note(note: Path) -> None:
    """Removes what `replace_note` wrote, and what it may have left."""
    note.unlink(missing_ok=True)
    note.with_name(f"{note.name}.new").unlink(missing_ok=True)


def _part_of(output: Path) -> Path:
    """`OUTPUT.part`, or `OUTPUT.part2` and so on where the user has a file of that name."""
    for number in itertools.count(1):
        path = output.with_name(f"{output.name}.part{number if number > 1 else ''}")
        if _is_ours(_note_of(path)) or not (path.exists() or _note_of(path).exists()):
            return path
    raise AssertionError("no number is the last one")


def _is_ours(note: Path) -> bool:
    try:
        return "work" in json.loads(note.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def _refusal(path: Path) -> str:
    return f"{path}: another process is writing it. Wait for its end, or name another output."


def _note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _read(path: Path, key: str) -> dict[str, Any]:
    """The state that was noted of a part of this work; that nothing is done if there is none."""
    nothing = {"bytes": 0, "records": 0, "facts": {}}
    note = _note_of(path)
    if not note.exists():
        return nothing
    try:
        state = json.loads(note.read_bytes())
        numbers = [state["bytes"], state["records"]]
        is_whole = isinstance(state["facts"], dict) and all(type(n) is int for n in numbers)
        if is_whole and state["work"] == key and 0 <= state["bytes"] <= path.stat().st_size:
            print(f"{path}: going on after {state['records']:,} records", file=sys.stderr)
            return {name: state[name] for name in nothing}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    print(f"{path}: belongs to another input, model or command, so it begins anew", file=sys.stderr)
    return nothing
