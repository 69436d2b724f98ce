"""The committee: what its kernel computes, its members on a small table, and on MoleculeACE."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from example_files import example

pytest.importorskip("sklearn", reason="scikit-learn is not installed")


def test_likeness_of_counts_is_the_sum_of_minima_over_that_of_maxima():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (3, 9)), rng.integers(0, 4, (5, 9))
    pairs = a[:, None], b[None]
    wanted = np.minimum(*pairs).sum(-1) / np.maximum(*pairs).sum(-1)
    np.testing.assert_allclose(example("committee").min_max(a, b), wanted, rtol=1e-6)


def test_descriptors_and_a_network_predict_together(tmp_path):
    ends = ("C", "O", "N", "Cl", "C#N")
    rows = [("C" * n + end, n + number / 5) for n in range(1, 9) for number, end in enumerate(ends)]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", "y", "split"])
        writer.writerows([*row, "test" if n % 4 == 3 else "train"] for n, row in enumerate(rows))
    module = example("committee")
    assert module.main([str(tmp_path / "t.csv")]) < 1  # the values go from 1 to 9
    assert module.main([str(tmp_path / "t.csv"), "--epochs", "1"]) < 2


@pytest.mark.slow
def test_a_set_of_moleculeace_is_predicted_as_the_page_says(data_root):
    table = str(data_root / "moleculeace" / "CHEMBL2047_EC50.csv")
    assert example("committee").main([table, "--target", "y [pEC50/pKi]"]) < 0.6
