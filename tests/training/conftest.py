"""Runs and corpora that many tests of training only read, made once for all test processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from training.tiny_runs import listops, train, write_corpora


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, made by the first test process that needs it."""
    folder = factory.getbasetemp()
    if folder.name.startswith("popen-"):  # of one process of several, beside theirs
        folder = folder.parent
    made = folder / f"shared-{name}"
    with FileLock(folder / f"{name}.lock"):
        if not made.exists():
            make(made)
    return made


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few records of every corpus that an experiment reads."""
    return _once(tmp_path_factory, "corpora", write_corpora)


@pytest.fixture(scope="session")
def listops_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two epochs on list operations, to be read or copied."""
    return _once(tmp_path_factory, "listops", lambda folder: train(folder, *listops()))


@pytest.fixture
def listops_copy(listops_run: Path, tmp_path: Path) -> Path:
    """A copy of it, which the test may change."""
    return Path(shutil.copytree(listops_run, tmp_path / "run"))
