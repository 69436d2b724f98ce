"""GCN against its dense formula and against PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from layers.molecule_graphs import SIZE, adjacency, atom_features, edge_index, molecules, run

from graphfold.errors import ConfigError, ShapeError
from graphfold.layers import GCNCell


@given(dag=molecules)
def test_it_equals_the_dense_formula(dag):
    cell, x = GCNCell(SIZE, activation="tanh"), atom_features(dag)
    loops = adjacency(dag) + torch.eye(dag.num_nodes)
    scale = loops.sum(1).rsqrt()
    matrix = scale.unsqueeze(1) * loops * scale
    want = torch.tanh(cell.linear(matrix @ torch.tanh(cell.linear(matrix @ x))))
    torch.testing.assert_close(run(cell, dag, x, rounds=2)["h"], want)


@given(dag=molecules)
def test_it_equals_pytorch_geometric(dag):
    geometric = pytest.importorskip("torch_geometric.nn")
    cell, x = GCNCell(SIZE), atom_features(dag)
    convolution = geometric.GCNConv(SIZE, SIZE)
    with torch.no_grad():
        convolution.lin.weight.copy_(cell.linear.weight)
        convolution.bias.copy_(cell.linear.bias)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = run(cell, dag, mine)["h"]
    want = torch.relu(convolution(theirs, edge_index(dag)))
    torch.testing.assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(cell.linear.weight.grad, convolution.lin.weight.grad)


@given(dag=molecules)
def test_the_residual_adds_the_old_state(dag):
    torch.manual_seed(0)
    plain = GCNCell(SIZE)
    residual = GCNCell(SIZE, residual=True)
    residual.load_state_dict(plain.state_dict())
    x = atom_features(dag)
    torch.testing.assert_close(run(residual, dag, x)["h"], run(plain, dag, x)["h"] + x)


def test_features_of_another_width_are_refused():
    with pytest.raises(ShapeError, match=r"GCNCell\(hidden_size=4\) starts from .* 3 wide"):
        GCNCell(4).initial(torch.zeros(2, 3))


def test_unknown_activation():
    with pytest.raises(ConfigError, match="no activation 'tahn'. Did you mean 'tanh'"):
        GCNCell(4, activation="tahn")
