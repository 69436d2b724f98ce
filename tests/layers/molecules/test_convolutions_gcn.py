"""GCN against its dense formula and against PyTorch Geometric."""

from __future__ import annotations

import torch
from hypothesis import given
from layers.molecule_graphs import SIZE, adjacency, atom_features, molecules, run

from graphfold.layers import GCNCell


@given(dag=molecules)
def test_it_equals_the_dense_formula(dag):
    cell, x = GCNCell(SIZE, activation="tanh"), atom_features(dag)
    loops = adjacency(dag) + torch.eye(dag.num_nodes)
    scale = loops.sum(1).rsqrt()
    matrix = scale.unsqueeze(1) * loops * scale
    want = torch.tanh(cell.linear(matrix @ torch.tanh(cell.linear(matrix @ x))))
    torch.testing.assert_close(run(cell, dag, x, rounds=2)["h"], want)
