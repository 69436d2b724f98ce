"""Writing of complete files: a new file replaces the old one only at the end.

Pipes and devices are written to. A link is followed if the user typed its path. Within a folder
that may be a stranger's, such as a run that is resumed, links are refused (`refuse_links`).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from graphfold.errors import ConfigError

if TYPE_CHECKING:
    from filelock import BaseFileLock


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that replaces `path` at the end, unless an error is raised before.

    A reader sees the old content or the new, never a part, even after kill -9. Of a symbolic link
    the target is replaced. A pipe or a device gets all of the content at the end.
    """
    if is_stream(path):
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with open(path, "wb") as stream:
                shutil.copyfileobj(file, stream)
        return
    path = followed(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode_of(path))
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def mode_of(path: Path) -> int:
    """The permissions of a file; of a new file the usual ones."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o777
    except FileNotFoundError:
        return 0o666 & ~_umask()


def remove_leftovers(path: Path) -> None:
    """Removes the temporary files of `whole_file` that killed processes left beside a file."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]+\.tmp")
    for other in path.parent.glob(".*.tmp"):
        if ours.fullmatch(other.name):
            other.unlink(missing_ok=True)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raises ConfigError if a part of a folder is a link, a pipe or a device, or holds one.

    Args:
        folder: the folder, which may be a stranger's.
        names: the files and folders in it that are written.
    """
    for name in names:
        for path in (folder / name, *(folder / name).rglob("*")):
            if os.path.lexists(path) and not _is_file_or_folder(path):
                raise ConfigError(
                    f"{path}: is a link, a pipe or a device, through which graphfold would write "
                    f"out of {folder}. Remove it, or put a file or a folder in its place."
                )


def _is_file_or_folder(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


@contextmanager
def locked(path: Path, refusal: Callable[[str], str] | None = None) -> Iterator[bool]:
    """Holds a lock; yields False where the file system has no locks.

    The system releases a lock when its process ends, even by kill -9.

    Args:
        path: the file of the lock. It names the process, and is removed at the end.
        refusal: makes the error message from the name of the process that holds the lock; None to
            wait for that process.

    Raises:
        ConfigError: if another process holds the lock.
        FileNotFoundError: if the folder of the file is absent.
    """
    from filelock import FileLock  # takes a tenth of a second to load

    # A tenth of a second for a second try, since a lock may be released during the first.
    lock = FileLock(path, timeout=-1 if refusal is None else 0.1, thread_local=False)
    if not _acquired(lock, path, refusal):
        yield False
        return
    try:
        _name_owner(path)
        yield True
    finally:
        with suppress(OSError):  # Windows removes it with the release
            path.unlink()  # before the release: a waiting process notices that the file is gone
        lock.release()


def _acquired(lock: BaseFileLock, path: Path, refusal: Callable[[str], str] | None) -> bool:
    from filelock import Timeout

    try:
        lock.acquire()
    except Timeout as error:
        assert refusal is not None
        raise ConfigError(refusal(_owner(path))) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        if not isinstance(error, PermissionError):  # else it is another user's
            path.unlink(missing_ok=True)
        return False
    return True


def _name_owner(path: Path) -> None:
    with suppress(OSError):  # on Windows a file that is locked cannot be written
        if path.stat().st_nlink == 1:
            path.write_text(f"process {os.getpid()} on {platform.node()}")


def _owner(path: Path) -> str:
    """The process that holds a lock."""
    with suppress(OSError):
        return path.read_bytes()[:200].decode(errors="replace") or "another process"
    return "another process"


def is_stream(path: Path) -> bool:
    """True for a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def followed(path: Path) -> Path:
    """The target of a symbolic link, even an absent one; any other path unchanged."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a complete file; an OSError names it."""
    try:
        with whole_file(path) as file:
            file.write(content)
    except OSError as error:  # which may name the temporary file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Writes a complete text file in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes one JSON object; raises ValueError for NaN and infinity."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def check_output(path: Path | None) -> None:
    """Raises ConfigError, before any work, if a file cannot be written at `path`."""
    if path is None:
        return
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise ConfigError(f"{path}: you may not write to it. Name a file.")
        return
    folder = followed(path).absolute().parent
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder. Name a file in it.")
    if not folder.is_dir():
        raise ConfigError(f"{path}: the folder {folder} does not exist. Make it first.")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{path}: the folder {folder} cannot be written to. Choose another.")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
