"""The cells of all shipped models are compiled for training, as these are configured."""

from __future__ import annotations

import pytest
from thinned import thinned
from training.one_step import new_loop
from training.shipped_models import MODELS


@pytest.mark.parametrize("case", thinned(MODELS, ("gat", "gatv2", "pna", "tree_rnn")))
def test_cells_are_compiled(overrides: list[str]) -> None:
    loop, data = new_loop(*overrides)
    model = loop.model.train()
    model(next(iter(data.loader("train", model.passes, lowering=model.lowering))))
    ways = set(model.network.execution.values())
    assert ways
    assert all(way.startswith("compiled") for way in ways), ways
