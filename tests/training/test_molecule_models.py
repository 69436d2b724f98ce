"""Every molecule model trains from its config, evaluates, predicts, and equals the reference."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from thinned import thinned
from training.tiny_runs import read_json, run, train, write_corpora

from graphfold.batching.native.library import why_missing
from graphfold.training.run.checkpoint import Checkpoint

MODELS = {
    name: [f"model={name}"]
    for name in ("gat", "gatv2", "pna", "gine", "ggnn", "mpnn", "attentive_fp", "weave")
}
MODELS["gine with a virtual node and jumping"] = [
    "model=gine",
    "model.virtual_node=bond",
    "model.cells.0._every_.jumping=sum",
    "model.readout.field=jump",
]
SMALL = ["data=esol", "trainer.max_epochs=1", "data.batch_size=16", "model.hidden_size=8"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("corpora"))


#: The others are slow: that each model's cells are compiled, and right, other tests say of all.
ALWAYS = ("attentive_fp", "gine with a virtual node and jumping")


@pytest.mark.parametrize("name", thinned(MODELS, ALWAYS))
def test_it_trains_and_equals_the_reference(name: str, corpora: Path, tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *MODELS[name], f"data.root={corpora}", *SMALL)
    assert read_json(folder / "metrics.json")["test/rmse"] >= 0
    path = tmp_path / "verify.json"
    assert run("verify", folder, "--examples", "4", "--json", path) == 0
    for row in read_json(path)["comparisons"]:
        assert row["equal"]
        if why_missing(torch.float64) is None:
            assert "compiled" in row["cells"]
            assert "as it is" not in row["cells"]


def test_the_mean_degree_is_kept_with_the_run(corpora: Path, tmp_path: Path) -> None:
    root = f"data.root={corpora}"
    folder = train(tmp_path / "run", "model=pna", "model.fuse=false", root, *SMALL)
    config = Checkpoint.load(folder / "checkpoints" / "best.ckpt").config
    assert 0.5 < config["model"]["cells"][0]["atom"]["mean_log_degree"] < 1.5


def largest_rise(folder: Path, *overrides: str) -> float:
    """The mean over four seeds of the largest ratio of the validation errors of two epochs."""
    rises = []
    for seed in range(4):
        with (train(folder / str(seed), *overrides, f"seed={seed}") / "metrics.csv").open() as file:
            errors = [float(row["val/rmse"]) for row in csv.DictReader(file)]
        rises.append(max(after / before for before, after in pairwise(errors[1:])))
    return sum(rises) / len(rises)


@pytest.mark.slow
def test_validation_errors_of_a_model_with_batch_norm_jump_less(tmp_path: Path) -> None:
    """By its defaults than with the weights of the last step and a plain sum of the atoms."""
    ends = ("", "O", "N", "Cl", "C(=O)O", "c1ccccc1")
    molecules = ["C" * length + end for length in range(1, 13) for end in ends]
    rows = [f"{smiles},{0.3 * len(smiles) + ('O' in smiles)}" for smiles in molecules]
    (tmp_path / "chains.csv").write_text("\n".join(["smiles,y", *rows, ""]))
    own = ["data=smiles", f"data.path={tmp_path}/chains.csv", "data.target_columns=[y]"]
    own += ["model=gcn", "model.hidden_size=16", "data.batch_size=4", "optimizer.lr=0.003"]
    own += ["optimizer=adam", "trainer.max_epochs=12"]
    jumping = ["callbacks=default", "model.readout._target_=graphfold.layers.SumReadout"]
    steady = largest_rise(tmp_path / "steady", *own)
    assert 1.3 * steady < largest_rise(tmp_path / "jumping", *own, *jumping)
