"""Runs of the version before, whose configs had other options, are still read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from training.tiny_runs import listops, read_json, run, train

import graphfold
from graphfold.training.config.stored_config import upgraded
from graphfold.training.run.checkpoint import Checkpoint

#: Of the config of a run of sst_tree_lstm, as it was stored where there was a C compiler.
EARLIER = yaml.safe_load("""
model:
  _target_: graphfold.layers.GraphModel
  recompute: false
  fuse: true
  encoder: {_target_: graphfold.layers.FeatureEncoder, _partial_: true, size: 300, dropout: 0.5}
  passes: [{_target_: graphfold.batching.Up}]
  cells:
  - word: {_target_: graphfold.layers.LeafLSTMCell, _partial_: true, hidden_size: 150, dropout: 0.5}
    phrase:
      _target_: graphfold.layers.NaryTreeLSTMCell
      _partial_: true
      hidden_size: 150
      dropout: 0.5
  readout: {_target_: graphfold.layers.NodeReadout, _partial_: true}
  head: {_target_: graphfold.layers.ClassificationHead, _partial_: true}
  engine: fast
products: onednn
deterministic: false
""")


def with_model(**more: Any) -> dict[str, Any]:
    return {**EARLIER, "model": {**EARLIER["model"], **more}}


def test_options_that_are_gone_are_left_out() -> None:
    config = copy.deepcopy(EARLIER)
    found = upgraded(config)
    assert config == EARLIER
    assert found["model"]["fuse"] is None
    assert found == {
        "model": {k: v for k, v in with_model(fuse=None)["model"].items() if k != "recompute"},
        "deterministic": False,
    }
    assert upgraded(found) == found


@pytest.mark.parametrize(("stored", "means"), [(True, None), (None, None), (False, False)])
@pytest.mark.parametrize("has_recompute", [True, False])  # that of fingerprints never had it
def test_a_run_asks_for_compiled_cells_where_that_can_be(
    stored: bool | None, means: bool | None, has_recompute: bool
) -> None:
    config = with_model(fuse=stored)
    if not has_recompute:
        del config["model"]["recompute"]
    assert upgraded(config)["model"]["fuse"] is means


def test_other_models_keep_their_options() -> None:
    config = with_model(_target_="my_package.Model")
    assert upgraded(config)["model"] == config["model"]
    assert upgraded({"seed": 1}) == {"seed": 1}


def make_earlier(folder: Path, **options: Any) -> None:
    """Makes a run one of the version before."""
    text = yaml.safe_load((folder / "config.yaml").read_text())
    text["model"] |= options
    text |= {"products": "onednn", "product_error": 5e-6}
    (folder / "config.yaml").write_text(yaml.safe_dump(text))
    for path in (folder / "checkpoints").glob("*.ckpt"):
        stored = Checkpoint.load(path)
        stored.config["model"] |= options
        stored.config.update(products="onednn", product_error=5e-6)
        path.write_bytes(stored.encode())


@pytest.mark.parametrize("fuse", [True, False])
def test_an_earlier_run_is_evaluated_applied_and_gone_on_with(fuse: bool, tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1"))
    metrics = read_json(folder / "metrics.json")
    make_earlier(folder, recompute=False, fuse=fuse)
    assert run("evaluate", folder, "--json", tmp_path / "e.json") == 0
    assert read_json(tmp_path / "e.json") == pytest.approx(metrics, rel=1e-5)
    assert graphfold.load(folder).predict(["4\t( ( ( [MAX 2 ) 4 ) ] )"])[0]["reason"] == ""
    assert run("verify", folder, "--policy", "depth") == 0
    assert run("train", f"resume={folder}") == 0  # scored again
    assert read_json(folder / "metrics.json") == pytest.approx(metrics, rel=1e-5)
    for path in (folder / "checkpoints").glob("*.ckpt"):
        path.unlink()
    assert run("train", f"resume={folder}") == 0  # from the beginning
    assert read_json(folder / "metrics.json") == pytest.approx(metrics, rel=1e-3)
