"""Modes of autograd: what a pass keeps is of use in every mode, whoever has read it first."""

from __future__ import annotations

import pytest
import torch
from engine_cells import make_batch, make_network, make_x, message_cells, random_dag, tree_cells

from graphfold.batching import Down, Pass, Rounds, Up

WAYS = ("auto", "eager")


@pytest.mark.parametrize("run", WAYS)
@pytest.mark.parametrize("passes", [[Up()], [Up(), Down()], [Rounds("next", 3)]], ids=repr)
def test_a_batch_that_was_evaluated_can_be_trained_on(run, passes: list[Pass]):
    cells = [tree_cells(), dict.fromkeys(("word", "phrase"), tree_cells()["phrase"])]
    cells = [message_cells()] if isinstance(passes[0], Rounds) else cells[: len(passes)]
    network, dag = make_network(passes, cells, run), random_dag(4, 0)
    x = make_x(dag)
    gradients = []
    for evaluate_first in (False, True):
        batch = make_batch(dag, network)
        if evaluate_first:
            with torch.inference_mode():
                network(batch, x)
        states = network(batch, x)
        total = sum(states[name].square().sum() for name in states)
        gradients.append(torch.autograd.grad(total, list(network.parameters()), allow_unused=True))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
