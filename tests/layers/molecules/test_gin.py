"""GIN and GINE against PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from layers.molecule_graphs import BOND, SIZE, atom_features, edge_index, molecules, run
from torch import nn

from graphfold.errors import ConfigError
from graphfold.layers import GINCell, GINECell


def mlp(cell: GINCell | GINECell) -> nn.Sequential:
    return nn.Sequential(cell.update.inner, nn.ReLU(), cell.update.outer)


@settings(max_examples=5)
@given(dag=molecules)
@pytest.mark.parametrize("learn_epsilon", [False, True])
def test_gin_equals_pytorch_geometric(learn_epsilon, dag):
    geometric = pytest.importorskip("torch_geometric.nn")
    cell = GINCell(SIZE, learn_epsilon=learn_epsilon)
    if learn_epsilon:
        nn.init.constant_(cell.update.epsilon, 0.3)
    convolution = geometric.GINConv(mlp(cell), eps=0.3 if learn_epsilon else 0.0)
    x = atom_features(dag)
    want = torch.relu(convolution(torch.relu(convolution(x, edge_index(dag))), edge_index(dag)))
    torch.testing.assert_close(run(cell, dag, x, rounds=2)["h"], want)


@settings(max_examples=5)
@given(dag=molecules)
def test_gine_equals_pytorch_geometric(dag):
    geometric = pytest.importorskip("torch_geometric.nn")
    cell = GINECell(SIZE, BOND)
    convolution = geometric.GINEConv(mlp(cell))
    x = atom_features(dag)
    edges = cell.edge_encoder(dag.columns["relation:bond"])
    want = torch.relu(convolution(x, edge_index(dag), edges))
    torch.testing.assert_close(run(cell, dag, x)["h"], want)


def test_gine_needs_edge_features():
    with pytest.raises(ConfigError, match="no columns to encode"):
        GINECell(SIZE, ())
