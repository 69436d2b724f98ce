"""The lock of a run folder: one training at a time."""

from __future__ import annotations

import fcntl
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphfold.errors import ConfigError

#: The file that is locked, in the folder; it names the process and goes with its training.
NAME = ".lock"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a folder.

    The system lets go of a lock with its process, however that ends: that of a dead process is
    taken over.

    Raises:
        ConfigError: if another process has the lock; names the process.
    """
    path = folder / NAME
    file = _locked(path)
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}".encode())
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock goes, or it would be that of the next
        file.close()


def _locked(path: Path) -> BinaryIO:
    """The lock file, opened and locked."""
    while True:
        file = open(path, "a+b")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(_refusal(path, file)) from error
        except OSError as error:
            warnings.warn(
                f"{path}: this file system has no locks ({error.strerror}). See to it that nobody "
                "else trains in the folder.",
                stacklevel=4,
            )
            return file
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:  # a training ended, and took its file along
            pass
        file.close()


def _refusal(path: Path, file: BinaryIO) -> str:
    with file:
        file.seek(0)
        owner = file.read(200).decode(errors="replace") or "another process"
    return (
        f"{path.parent}: {owner} is training in this folder. Wait for its end, or choose another "
        "hydra.run.dir."
    )
