"""Averaged weights against a loop over the steps, and through a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training.tiny_runs import read_json, train, write_corpora

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
    corpora = write_corpora(tmp_path / "corpora")
    own = ["experiment=sst_tree_lstm", "model.hidden_size=8", "trainer.max_epochs=2"]
    own += ["data.batch_size=4", "monitor=val/loss"]
    plain = train(tmp_path / "plain", *own, f"data.root={corpora}")
    mean = train(tmp_path / "mean", *own, f"data.root={corpora}", "callbacks=average")
    metrics = [read_json(folder / "metrics.json")["val/loss"] for folder in (plain, mean)]
    assert metrics[0] != metrics[1]
    again = read_json(
        train(tmp_path / "again", *own, f"data.root={corpora}", "callbacks=average")
        / "metrics.json"
    )
    assert again["val/loss"] == metrics[1]
