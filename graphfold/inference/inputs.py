"""Inputs of commands: files, patterns, folders, addresses, pipes, and `-` for standard input.

A pipe is read once and kept in a temporary file, for a reader may begin anew: a table finds its
columns first, and is read a second time for the cells that are written back. So is the file at an
address of fsspec, such as `s3://bucket/new.csv`.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from graphfold.datasets.adapter import Adapter
from graphfold.datasets.corpora.data_files import MARKS, expand, fixed_part
from graphfold.datasets.files.tables import reader_paths
from graphfold.errors import ConfigError, DataError, GraphfoldError, did_you_mean
from graphfold.files import is_stream
from graphfold.inference.places import Place, fetch, reaching

#: The word for standard input.
STANDARD_INPUT = "-"

#: In a pattern of addresses; a question mark may be that of https://host/new.csv?key=1.
_PATTERN = re.compile(r"[*\[]")

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


class Input(NamedTuple):
    """One input of a command.

    Args:
        path: the file; `-` is standard input.
        name: its path within the folder or the pattern that was given, else its name; outputs are
            called after it.
        address: where it is, if it is no file of this machine.
    """

    path: Path
    name: Path
    address: str | None = None

    @property
    def is_stream(self) -> bool:
        """True for standard input, pipes and devices."""
        if self.address is not None:
            return False
        return str(self.path) == STANDARD_INPUT or is_stream(self.path)

    @property
    def shown(self) -> str:
        """Its name in messages."""
        if self.address is not None:
            return self.address
        return "standard input" if str(self.path) == STANDARD_INPUT else str(self.path)


def find_input(word: Path) -> Input:
    """The one input that is given by a word."""
    return Input(word, Path("stdin") if str(word) == STANDARD_INPUT else Path(word.name))


def find_inputs(words: Sequence[Place], adapter: Adapter) -> list[Input]:
    """The inputs that are given by files, patterns and folders, each as in training.

    Args:
        words: what was given; text is an address.
        adapter: what reads them.

    Raises:
        DataError: if no file fits a pattern, or none is in a folder.
        ConfigError: if standard input is given twice.
    """
    found: list[Input] = []
    for word in words:
        if isinstance(word, str):
            found += _find_remote(word)
            continue
        if str(word) == STANDARD_INPUT:
            found.append(find_input(word))
            continue
        parent = fixed_part(word)
        files = expand(word, adapter.expands_folders, "INPUT")
        found += [Input(file, _below(file, parent)) for file in files]
    if sum(str(given.path) == STANDARD_INPUT for given in found) > 1:
        raise ConfigError("- stands for standard input, which is read once. Give it once.")
    return found


def _find_remote(address: str) -> list[Input]:
    """The files at an address: the one, those of a pattern, or those of a folder."""
    from fsspec.core import url_to_fs

    with reaching(address):
        system, place = url_to_fs(address)
        parent = PurePosixPath(place)
        if _PATTERN.search(place):
            files = system.glob(place)
            while _PATTERN.search(str(parent)):
                parent = parent.parent
        elif system.isdir(place):
            files = system.find(place)
        else:
            files, parent = [place], parent.parent
        names = [Path(PurePosixPath(file).relative_to(parent)) for file in files]
        pairs = sorted(zip(names, files, strict=True))
        found = [
            Input(Path(file), name, system.unstrip_protocol(file))
            for name, file in pairs
            if name.name not in MARKS and "/." not in f"/{name.as_posix()}"
        ]
    if not found:
        raise DataError(f"{address}: no file is there. Correct INPUT.", path=address)
    return found


def is_one_file(words: Sequence[Place], inputs: Sequence[Input]) -> bool:
    """True if the user named one file, not a folder or a pattern that may hold several."""
    if len(words) != 1 or len(inputs) != 1:
        return False
    (word,), (given,) = words, inputs
    if isinstance(word, str):
        return str(given.address).endswith(f"/{word.partition('://')[2].lstrip('/')}")
    return given.path == word.expanduser()


@contextmanager
def readable(given: Input, adapter: Adapter, kind: str | None) -> Iterator[Path]:
    """A file that may be read as often as need be; errors call it as the user did.

    Args:
        given: the input.
        adapter: what reads it.
        kind: the kind of table that it is, such as "csv"; None for what its name says. A pipe whose
            name says nothing is CSV, or Parquet, which is told by its content.

    Raises:
        ConfigError: if there is no such kind, or the adapter reads no tables.
        DataError: if a file of tables has no name that says its kind.
    """
    _check_kind(kind, adapter)
    if kind is None and given.address is None and not given.is_stream:
        _check_name(given, adapter)
        yield given.path
        return
    with kept(given, adapter.reads_tables, kind) as path:
        yield path


@contextmanager
def kept(given: Input, is_table: bool = True, kind: str | None = None) -> Iterator[Path]:
    """A file in a folder of its own, whose name says of which kind it is.

    Args:
        given: a stream or an address, whose content it gets, or a file, to which it is a link.
        is_table: whether it gets the ending of a table, where it has none.
        kind: see `readable`.
    """
    with tempfile.TemporaryDirectory(prefix="graphfold-") as folder:
        path = _at_hand(given, is_table, kind, Path(folder))
        try:
            yield path
        except GraphfoldError as error:
            error.message = error.message.replace(str(path), given.shown)
            raise


def _at_hand(given: Input, is_table: bool, kind: str | None, folder: Path) -> Path:
    source = given.path.absolute()
    if given.address is not None or given.is_stream:
        source = folder / "content"
        with source.open("wb") as file:
            _copy(given, file)
    elif not source.is_file():
        raise DataError(f"{given.path}: no such file. Correct the path.", path=str(given.path))
    with source.open("rb") as file:
        magic = file.read(len(_PARQUET))
    ending = "".join(given.name.suffixes)
    if kind is not None or (is_table and not _is_known(given.name)):
        ending = f".{kind or ('parquet' if magic == _PARQUET else 'csv')}"
        ending += ".gz" * magic.startswith(_GZIP)
    path = folder / f"{given.name.name.partition('.')[0]}{ending}"
    path.symlink_to(source)
    return path


def _copy(given: Input, file: BinaryIO) -> None:
    if given.address is not None:
        fetch(given.address, file)
        return
    if str(given.path) == STANDARD_INPUT:
        shutil.copyfileobj(sys.stdin.buffer, file)
        return
    try:
        with given.path.open("rb") as stream:
            shutil.copyfileobj(stream, file)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{given.path}: cannot be read ({reason}). Check it.") from error


def _check_kind(kind: str | None, adapter: Adapter) -> None:
    if kind is None:
        return
    if not adapter.reads_tables:
        raise ConfigError(
            f"--input-format {kind} names a kind of table, but the run reads none. Leave it out."
        )
    kinds = [suffix.removeprefix(".") for suffix in sorted(reader_paths())]
    if kind not in kinds:
        raise ConfigError(
            f"there is no input format '{kind}'.{did_you_mean(kind, kinds)} There are: "
            f"{', '.join(kinds)}."
        )


def _check_name(given: Input, adapter: Adapter) -> None:
    """Refuses a file of which nobody can tell the kind, and names the option that says it."""
    if adapter.reads_tables and given.path.is_file() and not _is_known(given.path):
        kinds = ", ".join(suffix.removeprefix(".") for suffix in sorted(reader_paths()))
        raise DataError(
            f"{given.path}: its name does not say of which kind the table is. Add --input-format, "
            f"which is one of {kinds}.",
            path=str(given.path),
        )


def _is_known(name: Path) -> bool:
    """True if the ending of a name says of which kind a table is."""
    plain = name.with_suffix("") if name.suffix.lower() == ".gz" else name
    return plain.suffix.lower() in reader_paths()


def _below(file: Path, parent: Path) -> Path:
    return file.relative_to(parent) if file.is_relative_to(parent) else Path(file.name)
