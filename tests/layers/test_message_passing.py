"""Batch normalisation in rounds of message passing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from molecules import SCHEMA, SIZE, atom_features, molecules, run
from strategies import chain
from torch.nn import functional

from graphfold.dag import GraphBuilder, split
from graphfold.layers import FingerprintCell, GCNCell, GINCell

CELLS = [
    lambda: GCNCell(SIZE, batch_norm=True),
    lambda: GINCell(SIZE, batch_norm=True),
    lambda: FingerprintCell(SIZE, 3, batch_norm=True),
]


def test_it_normalises_over_all_atoms_of_the_batch():
    dag = chain(SCHEMA, "atom", "atom", 5)
    cell, x = GCNCell(SIZE, activation="none", batch_norm=True), atom_features(dag)
    plain = GCNCell(SIZE, activation="none")
    plain.linear.load_state_dict(cell.linear.state_dict())
    want = functional.batch_norm(run(plain, dag, x)["h"], None, None, training=True)
    torch.testing.assert_close(run(cell, dag, x)["h"], want)
    assert cell.after_convolution.norm.num_batches_tracked == 1


@pytest.mark.parametrize("make", CELLS)
def test_a_single_atom_is_normalised_by_the_running_statistics(make):
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("atom"))
    builder.finish()
    dag, cell = builder.build(), make()
    x = atom_features(dag)
    trained = run(cell, dag, x)["h"]
    torch.testing.assert_close(trained, run(cell.eval(), dag, x)["h"])


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=5)
@given(dag=molecules)
def test_in_evaluation_the_rest_of_the_batch_does_not_matter(make, dag):
    cell, x = make(), atom_features(dag)
    run(cell, dag, x)  # moves the running statistics
    cell.eval()
    together = run(cell, dag, x)["h"]
    for graph, alone in enumerate(split(dag)):
        mine = dag.batch == graph
        torch.testing.assert_close(run(cell, alone, x[mine])["h"], together[mine])
