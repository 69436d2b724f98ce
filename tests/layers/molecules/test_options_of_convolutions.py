"""Residual connections, jumping, and the options that cells refuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from layers.molecule_graphs import BOND, SIZE, atom_features, molecules, run

from graphfold.layers import (
    GATCell,
    GATv2Cell,
    GCNCell,
    GGNNCell,
    GINCell,
    GINECell,
    PNACell,
)

CELLS = [
    GCNCell,
    GINCell,
    partial(GINECell, edge_columns=BOND),
    partial(GATCell, edge_columns=BOND, heads=2),
    partial(GATv2Cell, edge_columns=BOND, heads=2),
    partial(PNACell, edge_columns=BOND, mean_log_degree=0.9),
]
names = [getattr(cell, "func", cell).__name__ for cell in CELLS]


def make(cell, **options):
    return cell(hidden_size=SIZE, **options)


@settings(max_examples=3)
@given(dag=molecules)
@pytest.mark.parametrize("cell", CELLS, ids=names)
def test_a_residual_connection_adds_the_old_state(cell, dag):
    plain, residual = make(cell), make(cell, residual=True)
    residual.load_state_dict(plain.state_dict())
    x = atom_features(dag)
    torch.testing.assert_close(run(residual, dag, x)["h"], run(plain, dag, x)["h"] + x)


@settings(max_examples=3)
@given(dag=molecules)
@pytest.mark.parametrize(
    ("cell", "way"),
    [
        *((cell, "sum") for cell in CELLS),
        (GCNCell, "max"),
        (partial(GGNNCell, edge_columns=BOND), "max"),
    ],
)
def test_jump_is_the_states_of_all_rounds(cell, way, dag):
    made = make(cell, jumping=way)
    x = atom_features(dag)
    states = torch.stack([x, *(run(made, dag, x, rounds)["h"] for rounds in (1, 2, 3))])
    want = states.sum(0) if way == "sum" else states.amax(0)
    torch.testing.assert_close(run(made, dag, x, 3)["jump"], want)
