"""Recomputation: the same numbers from less memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from engine_cells import (
    SIZE,
    MessageCell,
    PairCell,
    PhraseCell,
    WordCell,
    chain,
    make_batch,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)
from program_checks import run
from torch import nn

from graphfold.batching import Rounds, Up
from graphfold.errors import EngineError


@pytest.mark.parametrize("trace_after", [None, 0])
@pytest.mark.parametrize("with_rounds", [False, True])
def test_it_changes_nothing(trace_after, with_rounds):
    torch.manual_seed(0)
    passes = [Up(), rounds()] if with_rounds else [Up()]
    cells = [tree_cells(), message_cells()] if with_rounds else [tree_cells()]
    network = make_network(passes, cells, trace_after=trace_after)
    for seed in range(3):
        dag = random_dag(4, seed)
        network.recompute = False
        want = run(network, dag, make_x(dag, seed))
        network.recompute = True
        got = run(network, dag, make_x(dag, seed))
        torch.testing.assert_close(got, want, rtol=0, atol=0)


class Token:
    """Something that autograd keeps."""


class Keeping(torch.autograd.Function):
    """The identity; it keeps a token for backward."""

    @staticmethod
    def forward(ctx, value, tokens):
        ctx.token = Token()
        tokens.append(weakref.ref(ctx.token))
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        assert ctx.token is not None
        return grad, None


class Watching(PhraseCell):
    """Remembers what autograd kept of it."""

    seen: list[weakref.ref]

    def forward(self, x, children):
        state = super().forward(x, children)
        return {**state, "h": Keeping.apply(state["h"], self.seen)}


@pytest.mark.parametrize("recompute", [False, True])
def test_what_cells_compute_in_between_is_let_go(recompute):
    Watching.seen = []
    cells = {"word": WordCell(), "phrase": Watching(), "pair": PairCell()}
    network = make_network(cells=[cells], trace_after=None, recompute=recompute)
    dag = chain(5)
    state = network(make_batch(dag, network), make_x(dag))["h"]
    gc.collect()
    assert len(Watching.seen) == 5
    alive = [ref() is not None for ref in Watching.seen]
    assert alive == [not recompute] * 5
    state.sum().backward()
    assert len(Watching.seen) == (10 if recompute else 5)


class Drawing(PhraseCell):
    def forward(self, x, children):
        state = super().forward(x, children)
        return {"h": nn.functional.dropout(state["h"]), "c": state["c"]}


class Normalising(MessageCell):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(SIZE)

    def forward(self, x, children):
        return {"m": self.norm(super().forward(x, children)["m"])}


def test_cells_that_draw_random_numbers_are_refused():
    cells = {"word": WordCell(), "phrase": Drawing(), "pair": PairCell()}
    network = make_network(cells=[cells], recompute=True)
    dag = chain(2)
    with pytest.raises(EngineError, match=r"Drawing drew random numbers.*model\.recompute=false"):
        network(make_batch(dag, network), make_x(dag))


def test_statistics_of_rounds_are_refused_in_training():
    cell = Normalising()
    cells = {"word": cell, "phrase": cell, "pair": cell}
    network = make_network([Rounds("next", 2)], [cells], recompute=True)
    dag = random_dag(3, 0)
    with pytest.raises(EngineError, match=r"changes its buffer 'norm.*again in backward"):
        network(make_batch(dag, network), make_x(dag))
    network.eval()
    network(make_batch(dag, network), make_x(dag))["m"].sum().backward()
