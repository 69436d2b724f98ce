"""Runs and corpora that many tests of training only read, made once for all test processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shared_folders import made_once
from training.shipped_models import small_overrides
from training.tiny_runs import listops, train, write_corpora


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few records of every corpus that an experiment reads."""
    return made_once(tmp_path_factory, "training_corpora", write_corpora)


@pytest.fixture(scope="session")
def listops_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two epochs on list operations, to be read or copied."""
    return made_once(tmp_path_factory, "listops", lambda folder: train(folder, *listops()))


@pytest.fixture
def listops_copy(listops_run: Path, tmp_path: Path) -> Path:
    """A copy of it, which the test may change."""
    return Path(shutil.copytree(listops_run, tmp_path / "run"))


@pytest.fixture
def overrides(case: str, corpora: Path, tmp_path: Path) -> list[str]:
    """The config of a small training of a case."""
    return small_overrides(case, corpora, tmp_path)
