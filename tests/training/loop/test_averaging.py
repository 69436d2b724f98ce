"""Averaged weights against a loop over the steps, and through a run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from training.tiny_runs import read_json, run, train, write_corpora

from graphfold.errors import ConfigError
from graphfold.training.loop.averaging import AverageWeights


def test_the_mean_is_that_of_a_loop():
    average = AverageWeights(decay=0.9)
    steps = torch.randn(200, 3)
    mean, count = steps[0].clone(), torch.tensor(7)
    want = steps[0].clone()
    for number, weights in enumerate(steps[1:], 1):
        average.add([mean, count], [weights, count + 1], torch.tensor(number))
        decay = min(0.9, (1 + number) / (10 + number))
        want = decay * want + (1 - decay) * weights
    torch.testing.assert_close(mean, want)
    assert count == 7 + 199


@pytest.mark.parametrize("decay", [0.0, 1.0, -3.0])
def test_a_decay_that_leaves_no_mean(decay):
    with pytest.raises(ConfigError, match="leaves no mean"):
        AverageWeights(decay)


def test_a_run_validates_and_keeps_the_mean(tmp_path: Path) -> None:
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", "data.batch_size=4"]
    own += ["monitor=val/loss", f"data.root={write_corpora(tmp_path / 'corpora')}"]
    own += ["trainer.max_epochs=2"]
    plain = train(tmp_path / "plain", *own)
    mean = train(tmp_path / "mean", *own, "callbacks=average")
    losses = []
    for folder in (plain, mean):
        with (folder / "metrics.csv").open() as file:
            epochs = [float(row["val/loss"]) for row in csv.DictReader(file)]
        # Scored from best.ckpt, after training.
        kept = read_json(folder / "metrics.json")["val/loss"]
        assert kept == pytest.approx(min(epochs), rel=1e-6)
        losses.append(kept)
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)
    assert run("train", f"resume={mean}", "trainer.max_epochs=3") == 0
    whole = train(tmp_path / "whole", *own, "callbacks=average", "trainer.max_epochs=3")
    assert read_json(mean / "metrics.json") == read_json(whole / "metrics.json")


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_the_mean_of_weights_in_another_precision(tmp_path: Path, precision: str) -> None:
    """It has the digits of the weights, and those of single precision at least; and resumes."""
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", "data.batch_size=4"]
    own += [f"data.root={write_corpora(tmp_path / 'corpora')}", f"trainer.precision={precision}"]
    own += ["callbacks=average", "monitor=val/loss"]
    once = train(tmp_path / "once", *own, "trainer.max_epochs=1")
    state = torch.load(once / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    digits = torch.float64 if precision == "64-true" else torch.float32
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {digits}
    assert run("train", f"resume={once}", "trainer.max_epochs=2") == 0
    whole = train(tmp_path / "whole", *own, "trainer.max_epochs=2")
    assert read_json(once / "metrics.json") == read_json(whole / "metrics.json")
