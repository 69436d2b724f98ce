"""The variants of benchmark molecules on a tiny corpus: they compute the same, or are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from torch import nn
from training.tiny_runs import MOLECULES, run

from graphfold.batching.native.library import why_missing
from graphfold.bench import measure, molecules
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import Experiment, load_experiment
from graphfold.bench.molecule_baselines import Parts, has_chemprop, message_weight
from graphfold.bench.molecule_tensors import OneHot, atom_columns, bond_columns, molecule_tensors

#: The variants that are graphfold.
HAS_NATIVE = why_missing(torch.float32) is None
OWN = ["graphfold", *(["untraced"] if HAS_NATIVE else []), "every_node"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    lines = [f"{smiles},{rng.gauss(0, 1):.2f}" for smiles in MOLECULES * 3]
    path = tmp_path_factory.mktemp("data") / "lipophilicity" / "Lipophilicity.csv"
    path.parent.mkdir()
    path.write_text("\n".join(["smiles,exp", *lines]) + "\n")
    return path.parent.parent


def experiment(root: Path, shape: str) -> Experiment:
    settings = [f"data.root={root}", f"data.cache_dir={root}/cache", "data.batch_size=5"]
    return load_experiment([*molecules.SHAPES[shape], "model.hidden_size=6", *settings])


@pytest.mark.parametrize("shape", molecules.SHAPES)
def test_all_variants_compute_the_same(shape: str, root: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    variants = molecules._variants(experiment(root, shape), shape)
    others = ["pyg", "chemprop"] if shape == "dmpnn" and has_chemprop() else ["pyg"]
    assert list(variants) == [*OWN, *others]
    results = {name: variant.results() for name, variant in variants.items()}
    for name, got in results.items():
        for mine, theirs in zip(results["graphfold"], got, strict=True):
            torch.testing.assert_close(mine, theirs, msg=name)


def test_a_step_of_training_leads_all_variants_to_the_same_weights(root: Path) -> None:
    variants = molecules._variants(experiment(root, "dmpnn"), "dmpnn")
    before = message_weight(variants["graphfold"].model).clone()
    for variant in variants.values():
        work = variant.work("train")
        work.function()  # type: ignore[no-untyped-call]
        assert work.examples == 20
    weights = [message_weight(variant.model) for variant in variants.values()]
    assert not torch.allclose(weights[0], before)
    for weight in weights[1:]:
        torch.testing.assert_close(weight, weights[0], rtol=1e-3, atol=1e-6)


def test_a_wrong_variant_is_refused(root: Path) -> None:
    variants = molecules._variants(experiment(root, "gcn"), "gcn")
    with torch.no_grad():
        message_weight(variants["every_node"].model).mul_(10)
    right, wrong = variants["graphfold"].results(), variants["every_node"].results()
    with pytest.raises(RuntimeError, match="variant every_node differs from graphfold"):
        require_equal("every_node", wrong, right)


def test_one_hot_features_and_a_linear_layer_are_the_encoder(root: Path) -> None:
    found = experiment(root, "gine")
    (batch,) = found.batches(1)
    atoms, bonds = OneHot([atom_columns(batch.dag)]), OneHot([bond_columns(batch.dag)])
    tensors = molecule_tensors(batch.dag, atoms, bonds)
    encoder = Parts(found.model).encoders["atom"]
    torch.testing.assert_close(
        atoms.linear(encoder)(tensors.atoms), encoder(batch.dag.features("atom"))
    )
    assert isinstance(atoms.linear(encoder), nn.Linear)
    assert tensors.atoms.sum(1).unique().tolist() == [len(atoms.codes)]
    assert tensors.bonds.shape == (len(tensors.source), bonds.size)


def test_the_command_prints_every_variant(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SECONDS", 0.0), ("SECONDS_PER_TURN", 0.0), ("TURNS", 2)):
        monkeypatch.setattr(measure, name, value)
    path = tmp_path / "rows.json"
    sizes = ["--batch-size", "5", "--hidden-size", "6"]
    settings = [f"data.root={root}", f"data.cache_dir={root}/cache"]
    assert run("bench", "molecules", *sizes, "--json", path, *settings) == 0
    rows = json.loads(path.read_text())
    assert {row["shape"] for row in rows} == set(molecules.SHAPES)
    for phase in ("train", "inference"):
        names = [row["variant"] for row in rows if (row["shape"], row["phase"]) == ("gcn", phase)]
        assert names == [*OWN, "pyg", "product_floor"]
