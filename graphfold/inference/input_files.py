"""Inputs of commands: files, patterns, folders, pipes, and `-` for standard input.

A pipe is copied into a temporary file, since a reader may read twice: a table reads its header
first.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from graphfold.datasets.adapter import Adapter
from graphfold.datasets.corpora.data_files import expand, fixed_part
from graphfold.errors import DataError, GraphfoldError
from graphfold.files import is_stream

#: The word for standard input.
STANDARD_INPUT = Path("-")

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


class Input(NamedTuple):
    """One input of a command.

    Args:
        path: the file; `-` is standard input.
        name: its path within the folder or the pattern of the command, else its name; the name of
            the output follows from it.
    """

    path: Path
    name: Path


def find_inputs(words: Sequence[Path], adapter: Adapter) -> list[Input]:
    """The inputs that files, patterns and folders stand for, as in training.

    Raises:
        DataError: if no file fits a pattern, or none is in a folder.
    """
    inputs: list[Input] = []
    for word in words:
        if word == STANDARD_INPUT:
            inputs.append(Input(word, Path("stdin")))
            continue
        parent = fixed_part(word)
        for file in expand(word, adapter.expands_folders, "INPUT"):
            below = file.is_relative_to(parent)
            inputs.append(Input(file, file.relative_to(parent) if below else Path(file.name)))
    return inputs


def is_piped(path: Path) -> bool:
    """True for standard input, pipes and devices."""
    return path == STANDARD_INPUT or is_stream(path)


def shown_name(path: Path) -> str:
    """The name of an input in messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """A file that can be read twice; errors name it as the user did.

    A pipe without a suffix in its name is CSV, or Parquet by its content.

    Raises:
        DataError: if there is no such file.
    """
    if not is_piped(path):
        if not path.exists():
            raise DataError.in_file(path, "no such file. Correct the path.")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="graphfold-") as folder:
        copy = _copied(path, Path(folder))
        try:
            yield copy
        except GraphfoldError as error:
            error.message = error.message.replace(str(copy), shown_name(path))
            raise


def _copied(path: Path, folder: Path) -> Path:
    content = folder / "content"
    source = nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb")
    with content.open("wb+") as file, source as stream:
        shutil.copyfileobj(stream, file)
        file.seek(0)
        magic = file.read(len(_PARQUET))
    ending = "".join(path.suffixes) or (".parquet" if magic == _PARQUET else ".csv")
    if magic.startswith(_GZIP) and not ending.endswith(".gz"):
        ending += ".gz"
    return content.rename(folder / f"input{ending}")
