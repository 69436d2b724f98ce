"""Folders that tests only read, made once however many processes run the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of that name, which the first process fills and the others wait for.

    Args:
        factory: of this process; the folder is beside those of all processes.
        name: of the folder.
        make: fills the folder, which it also creates.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    done = root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            make(root / name)
            done.touch()
    return root / name
