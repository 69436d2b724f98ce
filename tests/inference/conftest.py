"""Runs that the tests of prediction share, each trained once and never changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from shared_folders import made_once
from training.tiny_runs import listops, train, write_corpora, write_molecules

SMALL = ("model.hidden_size=8", "model.run=eager", "trainer.max_epochs=1", "data.batch_size=8")

Trained = Callable[..., Path]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of molecules, `m.csv`, and the corpora of trees, `corpora`."""

    def write(folder: Path) -> None:
        write_molecules(folder / "m.csv")
        write_corpora(folder / "corpora")

    return made_once(tmp_path_factory, "inference", write)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """`trained(name, *overrides, draws=False)`: the run of that name, trained once."""

    def train_once(name: str, *overrides: str, draws: bool = False) -> Path:
        return made_once(tmp_path_factory, name, lambda f: train(f, *overrides, draws=draws))

    return train_once


@pytest.fixture(scope="session")
def numbers(home: Path, trained: Trained) -> Path:
    """A run of molecules with the targets `a b` and `c`."""
    words = ("data=smiles", f"data.path={home}/m.csv", "data.target_columns=['a b',c]")
    return trained("numbers", *words, *SMALL)


@pytest.fixture(scope="session")
def classes(home: Path, trained: Trained) -> Path:
    """A run of molecules that are active or not."""
    words = ("data=smiles", f"data.path={home}/m.csv", "data.target_columns=[active]")
    return trained("classes", *words, "data.task=classification", *SMALL)


@pytest.fixture(scope="session")
def trees(home: Path, trained: Trained) -> Path:
    """A run of trees with a grade on each node."""
    return trained("trees", "experiment=sst_tree_lstm", f"data.root={home}/corpora", *SMALL)


@pytest.fixture(scope="session")
def tagger(home: Path, trained: Trained) -> Path:
    """A run of sentences with a tag on each word."""
    return trained("tagger", "experiment=ud_upos", f"data.root={home}/corpora", *SMALL)


@pytest.fixture(scope="session")
def lists(trained: Trained) -> Path:
    """A run of generated list operations with an answer each."""
    return trained("listops", *listops())  # as tests of training have it
