"""The baselines of benchmark molecules: where they are measured, and their features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from training.tiny_runs import write_corpora

from benchmarks import molecules
from benchmarks.baselines.molecule_models import Parts
from benchmarks.baselines.molecule_tensors import (
    OneHot,
    atom_columns,
    bond_columns,
    molecule_tensors,
)
from benchmarks.experiment import Experiment, load_experiment


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("data"))


def experiment(root: Path, shape: str) -> Experiment:
    settings = [f"data.root={root}", f"data.cache_dir={root}/cache", "data.batch_size=5"]
    return load_experiment([*molecules.SHAPES[shape], "model.hidden_size=8", *settings])


def test_one_hot_features_and_a_linear_layer_are_the_encoder(root):
    found = experiment(root, "gine")
    (batch,) = found.batches(1)
    atoms, bonds = OneHot([atom_columns(batch.dag)]), OneHot([bond_columns(batch.dag)])
    tensors = molecule_tensors(batch.dag, atoms, bonds)
    encoder = Parts(found.graph_model).encoders["atom"]
    torch.testing.assert_close(
        atoms.linear(encoder)(tensors.atoms), encoder(batch.dag.features("atom"))
    )
    assert isinstance(atoms.linear(encoder), nn.Linear)
    assert tensors.atoms.sum(1).unique().tolist() == [len(atoms.codes)]
    assert tensors.bonds.shape == (len(tensors.source), bonds.size)
