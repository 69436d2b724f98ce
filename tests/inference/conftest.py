"""Runs that the tests of prediction share, each trained once."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.tiny_runs import train, write_corpora, write_molecules

SMALL = ("model.hidden_size=8", "model.fuse=false", "trainer.max_epochs=1", "data.batch_size=8")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs, with the tables of molecules and the corpora of trees."""
    folder = tmp_path_factory.mktemp("predicted")
    write_molecules(folder / "m.csv")
    write_corpora(folder / "corpora")
    return folder


@pytest.fixture(scope="session")
def numbers(home: Path) -> Path:
    """A run of molecules with the targets `a b` and `c`."""
    words = ("data=smiles", f"data.path={home}/m.csv", "data.target_columns=['a b',c]")
    return train(home / "numbers", *words, *SMALL)


@pytest.fixture(scope="session")
def classes(home: Path) -> Path:
    """A run of molecules that are active or not."""
    words = ("data=smiles", f"data.path={home}/m.csv", "data.target_columns=[active]")
    return train(home / "classes", *words, "data.task=classification", *SMALL)


@pytest.fixture(scope="session")
def trees(home: Path) -> Path:
    """A run of trees with a grade on each node."""
    return train(home / "trees", "experiment=sst_tree_lstm", f"data.root={home}/corpora", *SMALL)


@pytest.fixture(scope="session")
def tagger(home: Path) -> Path:
    """A run of sentences whose words have tags."""
    return train(home / "tags", "experiment=ud_upos", f"data.root={home}/corpora", *SMALL)
