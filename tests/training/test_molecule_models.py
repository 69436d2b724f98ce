"""Every molecule model trains from its config, evaluates, predicts, and equals the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from thinned import thinned
from training.tiny_runs import read_json, run, train

from graphfold.batching.native.library import why_missing

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
            assert "eager" not in row["cells"]
