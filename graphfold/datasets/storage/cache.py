"""The cache folder: packed data and corpora that are made on the spot."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from graphfold.datasets.storage.graph_file import read_metadata
from graphfold.errors import ConfigError, DataError
from graphfold.files import locked

#: The most gigabytes of stored copies in a cache folder, if the environment does not say.
MOST_GIGABYTES = 5.0

#: The variable of the environment that says it.
LIMIT = "GRAPHFOLD_CACHE_GB"

#: The lock of the process that packs, in its folder.
_LOCK = ".packing.lock"

#: The end of the names of stored copies.
STORED = ".graphs"


def default_cache_dir() -> Path:
    """$XDG_CACHE_HOME/graphfold, else ~/.cache/graphfold."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "graphfold"


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turns a failure to write under `folder` into a readable one.

    Raises:
        DataError: if the disk is full, the folder may not be written to, or it cannot be made.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder}: nothing can be stored there ({error.strerror or error}). Set "
            "data.cache_dir to a folder with space that you may write to.",
            path=str(folder),
        ) from error


def most_bytes() -> int:
    """The most bytes of stored copies in a folder.

    Raises:
        ConfigError: if the environment says something else than a number from 0 on.
    """
    text = os.environ.get(LIMIT, "").strip() or str(MOST_GIGABYTES)
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 <= gigabytes < math.inf:
        raise ConfigError(
            f"the variable {LIMIT} is '{text}', but it is a number of gigabytes. Correct it, or "
            f"leave it out for {MOST_GIGABYTES:g}."
        )
    return int(gigabytes * 1e9)


def note_use(stored: Path) -> None:
    """Notes that a stored copy was read, so that others are removed before it."""
    with suppress(OSError):  # a folder that may only be read
        os.utime(stored)


@contextmanager
def packing_folder(stored: Path) -> Iterator[Path]:
    """An empty folder for what becomes a stored copy.

    One process at a time is within, the others wait for it. What a killed one left is removed.
    """
    folder = _growing(stored)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(_remove_empty, folder)
        if not _lock(folder, stack):  # a file system without locks: each packs for itself
            own = tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent)
            folder = Path(stack.enter_context(own))
        _remove_files(folder)
        stack.callback(_remove_files, folder)
        yield folder


def tidy_up(stored: Path) -> None:
    """Removes what a process left that was killed just after it had stored the copy."""
    if _growing(stored).exists():
        with packing_folder(stored):
            pass


def _growing(stored: Path) -> Path:
    return stored.with_name(f".packing-{stored.stem}")


def _lock(folder: Path, stack: ExitStack) -> bool:
    """Makes a folder and enters its lock, see `locked`; False if it cannot be locked."""
    while True:
        with suppress(FileExistsError):
            folder.mkdir()
        with suppress(FileNotFoundError):  # the process before has just removed the folder
            return stack.enter_context(locked(folder / _LOCK))


def _remove_files(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != _LOCK:
            with suppress(OSError):
                path.unlink()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # the next process has its lock in it
        folder.rmdir()


def remove_oldest(folder: Path, kept: Collection[Path]) -> list[Path]:
    """Removes the stored copies that were not read for longest, until the others fit.

    Who has one of them open keeps it. Corpora that are made on the spot stay, and so does every
    file that `GraphFileWriter` did not write: the folder may hold files of the user's.

    Args:
        folder: the cache folder.
        kept: copies that stay, however large.

    Returns:
        The removed files.
    """
    room, removed = most_bytes(), []
    facts = []
    for path in filter(_is_copy, folder.iterdir()):
        with suppress(FileNotFoundError):  # another process removes them, too
            status = path.stat()
            facts.append((path not in kept, -status.st_mtime, status.st_size, path))
    for _, _, size, path in sorted(facts):
        room -= size
        if room < 0 and path not in kept:
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def _is_copy(path: Path) -> bool:
    """True for a file with the manifest of a stored copy; a link to one is none."""
    if path.suffix != STORED or path.is_symlink():
        return False
    with suppress(OSError, ValueError, KeyError, TypeError):
        return "fingerprint" in read_metadata(path)
    return False


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size_of(inner) for inner in path.iterdir())


def clear(folder: Path) -> int:
    """Removes all that is in a cache folder but what other processes are writing.

    Returns:
        The number of bytes that were freed.

    Raises:
        DataError: if something may not be removed.
    """
    freed = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            size = size_of(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            raise DataError(
                f"{path}: cannot be removed ({error.strerror or error}). Remove it by hand.",
                path=str(path),
            ) from error
        freed += size
    return freed
