"""The neural fingerprint against the algorithm of its paper, atom by atom."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from layers.molecule_graphs import BOND, SIZE, atom_features, edge_index, molecules, run
from torch import Tensor

from graphfold.dag import Column, TypedDAG
from graphfold.layers import FingerprintCell


def algorithm_2(cells: list[FingerprintCell], dag: TypedDAG, x: Tensor) -> Tensor:
    """[num_nodes, fingerprint_size] what each atom writes into the fingerprint."""
    source, target = edge_index(dag).tolist()
    h, written = list(x), []
    for cell in cells:
        bonds = [] if cell.edge_encoder is None else cell.edge_encoder(dag.columns["relation:bond"])
        new = []
        for atom in range(dag.num_nodes):
            edges = [e for e, t in enumerate(target) if t == atom]
            v = h[atom] + sum(h[source[e]] + (bonds[e] if len(bonds) else 0) for e in edges)
            degree = min(len(edges), cell.by_degree.max_degree)
            new.append(torch.relu(cell.by_degree.weight[degree] @ v + cell.by_degree.bias[degree]))
        h = new
        written.append(torch.stack([torch.softmax(cell.contribution(row), 0) for row in h]))
    return torch.stack(written).sum(0)


def make_cells(columns: tuple[Column, ...], max_degree: int) -> list[FingerprintCell]:
    return [FingerprintCell(SIZE, 6, columns, max_degree) for _ in range(2)]


@pytest.mark.parametrize("max_degree", [0, 2, 5])
@pytest.mark.parametrize("columns", [(), BOND], ids=["atoms", "bonds"])
@settings(max_examples=5)
@given(dag=molecules)
def test_it_equals_the_algorithm(max_degree, columns, dag):
    cells = make_cells(columns, max_degree)
    x = atom_features(dag)
    want = algorithm_2(cells, dag, x)
    torch.testing.assert_close(run(cells, dag, x, rounds=2)["fingerprint"], want)
