"""Cells that read their children in unusual ways: compiled and right, or refused and right."""

from __future__ import annotations

import pytest
import torch
from compiled_checks import states_and_gradients
from hypothesis import strategies as st
from random_cells import (
    PARTS,
    SCHEMA,
    UNUSUAL_DOWN,
    UNUSUAL_OWN,
    UNUSUAL_READS,
    Part,
    RandomCell,
    features,
    full,
    random_cells,
)
from strategies import dags
from thinned import random_programs
from torch import nn

from graphfold.batching import Down, Network, Up
from graphfold.dag import TypedDAG


def parts_of(network: Network) -> list[Part]:
    return [module for module in network.modules() if isinstance(module, Part)]


def assert_unusual_reads(network: Network, dag: TypedDAG) -> None:
    """Every engine gives the reference's numbers, also after the buffers have changed."""
    x = features(dag)
    for _ in range(2):
        network.run = "reference"
        want = states_and_gradients(network, dag, x)
        for way in ("auto", "eager"):
            network.run = way
            actual = states_and_gradients(network, dag, x)
            torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-10)
        for part in parts_of(network):
            part.factors.mul_(-1.5)


@st.composite
def unusual_networks(draw: st.DrawFn) -> Network:
    """Up and down, with cells that read in unusual ways as well."""
    up = {
        "word": draw(random_cells(0, (*PARTS, *UNUSUAL_OWN))),
        "phrase": draw(random_cells(None, (*PARTS, *UNUSUAL_OWN, *UNUSUAL_READS))),
        "pair": draw(random_cells(2, (*UNUSUAL_OWN, *UNUSUAL_READS))),
    }
    down_parts = (*PARTS, *UNUSUAL_OWN, *UNUSUAL_DOWN)
    down = {name: draw(random_cells(None, down_parts)) for name in ("word", "phrase")}
    for cell in (*up.values(), *down.values()):
        cell.parts[0].kind = draw(st.sampled_from((*PARTS, *UNUSUAL_OWN)))
    return Network(SCHEMA, (Up(), up), (Down(), down)).double()


@pytest.mark.filterwarnings("ignore:.* is not compiled")
@random_programs(4, 40, st.data())
def test_cells_that_read_in_unusual_ways_are_right_or_refused(data):
    assert_unusual_reads(data.draw(unusual_networks()), data.draw(dags(SCHEMA, max_nodes=9)))


#: The ways that a program can follow; all others are refused, caches until they are filled.
COMPILED = {*UNUSUAL_DOWN, "heads", "cached", "cached_by_function"}


@pytest.mark.filterwarnings("ignore:.* is not compiled")
@pytest.mark.parametrize("kind", [*UNUSUAL_OWN, *UNUSUAL_DOWN])
def test_an_unusual_read(kind):
    torch.manual_seed(0)

    def cell(kind: str, arity: int | None) -> RandomCell:
        return RandomCell(["linear", kind], False, nn.Tanh(), nn.Identity(), arity)

    up = {"word": cell("plain", 0), "phrase": cell("sum", None), "pair": cell("sum", 2)}
    down = {name: cell(kind, None) for name in ("word", "phrase")}
    network = Network(SCHEMA, (Up(), up), (Down(), down)).double()
    assert_unusual_reads(network, full())
    network.run = "auto"
    states_and_gradients(network, full(), features(full()))
    is_compiled = network.execution["word"].startswith("compiled (")
    assert is_compiled == (kind in COMPILED), network.execution
