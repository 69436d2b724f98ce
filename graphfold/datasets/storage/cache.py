"""The cache folder of stored copies, generated corpora and compiled code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphfold.errors import DataError


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
        raise DataError.in_file(
            folder,
            f"nothing can be stored there ({error.strerror or error}). Set "
            "data.cache_dir to a folder with space that you may write to.",
        ) from error
