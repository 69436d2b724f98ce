"""The baselines of benchmark molecules: where they are measured, and their features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from thinned import thinned
from torch import nn
from training.tiny_runs import write_corpora

from benchmarks import molecules
from benchmarks.baselines.molecule_models import Parts, has_chemprop
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


#: One that both libraries have, one that one of them has, and those that neither has.
KINDS = ("dmpnn", "gcn", "weave", "fragments")


@pytest.mark.parametrize("shape", thinned(molecules.SHAPES, KINDS))
def test_other_libraries_are_variants_where_they_are_installed(shape: str, root: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    found = experiment(root, shape)
    others = ["pyg", "chemprop"] if shape == "dmpnn" and has_chemprop() else ["pyg"]
    others = [] if shape == "weave" else others  # which PyTorch Geometric does not have
    names = list(molecules.make_variants(found, found.batches(1)))
    assert names[names.index("every_node") + 1 :] == ([] if shape == "fragments" else others)


def test_one_hot_features_and_a_linear_layer_are_the_encoder(root: Path) -> None:
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
