"""PretrainingHead: cut-off targets, a random part of which counts."""

from __future__ import annotations

import pytest
import torch

from graphfold.dag import Column, NodeType, Schema
from graphfold.errors import ConfigError
from graphfold.layers import PretrainingHead

NAMES = [f"d{number}" for number in range(40)]
SCHEMA = Schema((NodeType("a", 0),), graph_targets=tuple(Column(n, "float32") for n in NAMES))
SCALERS = dict.fromkeys(NAMES, (1.0, 2.0))


def head(**options: float) -> PretrainingHead:
    return PretrainingHead(3, SCHEMA, scalers=SCALERS, **options)


def test_all_targets_count_in_scoring_cut_off_at_the_clip() -> None:
    raw, targets = torch.zeros(2, 40), torch.full((2, 40), 1.0)
    targets[0, 0], targets[0, 1], targets[1, 2] = 1000.0, 3.0, float("nan")
    losses = head().eval().losses(raw, targets)
    torch.testing.assert_close(losses, torch.tensor([(36.0 + 1.0) / 40, 0.0]))


def test_a_random_part_counts_in_training_and_the_rest_gets_no_gradient() -> None:
    torch.manual_seed(0)
    learner = head().train()
    raw = torch.zeros(500, 40, requires_grad=True)
    targets = torch.full((500, 40), 3.0)  # one deviation above the mean
    learner.losses(raw, targets).sum().backward()
    assert raw.grad is not None
    counted = raw.grad != 0
    assert counted.float().mean().item() == pytest.approx(0.15, abs=0.01)
    before = counted.clone()
    raw.grad = None
    losses = learner.losses(raw, targets)
    losses.sum().backward()
    assert raw.grad is not None
    assert bool(((raw.grad != 0) != before).any())
    assert losses.mean().item() == pytest.approx(1.0, abs=0.1)  # as if all counted


def test_wrong_options_are_refused() -> None:
    for options in ({"share": 0.0}, {"share": 1.5}, {"clip": 0.0}):
        with pytest.raises(ConfigError, match="Give a share above 0"):
            head(**options)
