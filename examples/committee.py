"""A committee: scikit-learn's trees, boosting and a kernel on RDKit's descriptors, and a network.

    pip install 'graphfold[sklearn]'
    python examples/committee.py CHEMBL204_Ki.csv --target 'y [pEC50/pKi]'
    python examples/committee.py CHEMBL204_Ki.csv --target 'y [pEC50/pKi]' --epochs 50

Models that err in different ways err less together (Krogh and Vedelsby 1995). A column `split` of
the table says which rows are train and which are test. With `--epochs` a network, a D-MPNN of
`graphfold.sklearn`, is a fourth member. Any estimator of scikit-learn may be another.

The first three with these settings have a test RMSE of .640 on average over the 20 sets of
MoleculeACE that Burns et al. (2025) compare, where the best model, CheMeleon, has .678. (This file
was run on four of the sets: .670, as before.)
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors
from rdkit.Chem import rdFingerprintGenerator as fingerprints
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    VotingRegressor,
)
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import RidgeCV
from sklearn.metrics import root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer

from graphfold.sklearn import GraphRegressor

SIZE = 2048
COUNTS = (
    fingerprints.GetMorganGenerator(radius=2, fpSize=SIZE),
    fingerprints.GetAtomPairGenerator(fpSize=SIZE),
    fingerprints.GetTopologicalTorsionGenerator(fpSize=SIZE),
)


@cache
def describe(smiles: str) -> np.ndarray:
    """[3 SIZE + number of RDKit's descriptors] counts of substructures, then the descriptors."""
    molecule = Chem.MolFromSmiles(smiles)
    counts = [kind.GetCountFingerprintAsNumPy(molecule) for kind in COUNTS]
    numbers = np.array([*Descriptors.CalcMolDescriptors(molecule, missingVal=0.0).values()])
    return np.concatenate([*counts, np.nan_to_num(numbers).clip(-1e6, 1e6)]).astype(np.float32)


def describe_all(smiles: Sequence[str]) -> np.ndarray:
    """[num_molecules, 3 SIZE + number of RDKit's descriptors]"""
    return np.stack([describe(text) for text in smiles])


class Likeness(TransformerMixin, BaseEstimator):
    """Rows of likenesses to the training molecules, between 0 and 1, for a precomputed kernel.

    The mean of sum(min) / sum(max) of each kind of counts (Ralaivola et al. 2005) and of a Gaussian
    of the descriptors.
    """

    def fit(self, X: np.ndarray, y: Any = None) -> Likeness:
        self.scaler_ = QuantileTransformer(
            n_quantiles=min(100, len(X)), output_distribution="normal"
        ).fit(X[:, len(COUNTS) * SIZE :])
        self.known_ = self._parts(X)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        *counts, numbers = zip(self._parts(X), self.known_, strict=True)
        kernels = [min_max(rows, known) for rows, known in counts]
        (a, b) = numbers
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return np.mean([*kernels, np.exp(-squares / a.shape[1])], axis=0)

    def _parts(self, X: np.ndarray) -> list[np.ndarray]:
        ends = [SIZE * n for n in range(1, len(COUNTS) + 1)]
        *counts, numbers = np.split(X, ends, axis=1)
        return [*counts, self.scaler_.transform(numbers).clip(-3, 3)]


def min_max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[len(a), len(b)] sum(min) / sum(max) of counts.

    A minimum is the number of thresholds 1, 2, ... that both reach: products of zeros and ones.
    """
    least = np.zeros((len(a), len(b)), np.float32)
    for threshold in range(1, int(min(a.max(), b.max())) + 1):
        both = (a >= threshold).any(0) & (b >= threshold).any(0)
        reach = [(x[:, both] >= threshold).astype(np.float32) for x in (a, b)]
        least += reach[0] @ reach[1].T
    most = a.sum(1)[:, None] + b.sum(1) - least
    return np.divide(least, most, out=np.ones_like(least), where=most > 0)


def committee(seed: int = 0, epochs: int = 0) -> VotingRegressor:
    """A regressor from SMILES: the mean of its members.

    Args:
        seed: of all members.
        epochs: of the network; 0 for none.
    """
    trees = ExtraTreesRegressor(300, max_features=0.1, n_jobs=-1, random_state=seed)
    rounds = HistGradientBoostingRegressor(
        learning_rate=0.05, max_iter=300, max_leaf_nodes=15, min_samples_leaf=5, max_bins=63,
        l2_regularization=1.0, max_features=0.1, early_stopping=False, random_state=seed,
    )  # fmt: skip
    boosting = make_pipeline(VarianceThreshold(0.01), rounds)  # most counts are nearly always 0
    ridges = RidgeCV([0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
    kernel = make_pipeline(Likeness(), KernelPCA(kernel="precomputed"), ridges)
    members = [("trees", trees), ("boosting", boosting), ("kernel", kernel)]
    described = make_pipeline(FunctionTransformer(describe_all), VotingRegressor(members))
    if not epochs:
        return VotingRegressor([("descriptors", described)])
    network = GraphRegressor(model="dmpnn", max_epochs=epochs, random_state=seed)
    return VotingRegressor([("descriptors", described), ("network", network)], weights=[3, 1])


def main(arguments: list[str] | None = None) -> float:
    """Prints the RMSE of the test rows of a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", help="CSV with the columns smiles and split: train or test")
    parser.add_argument("--target", default="y", help="the column of the values")
    parser.add_argument("--epochs", type=int, default=0, help="of the network; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    with open(args.table, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    parts = [[row for row in rows if row["split"] == part] for part in ("train", "test")]
    (x, y), (new, truth) = (
        ([row["smiles"] for row in part], [float(row[args.target]) for row in part])
        for part in parts
    )
    error = root_mean_squared_error(truth, committee(args.seed, args.epochs).fit(x, y).predict(new))
    print(f"RMSE {error:.3f} of {len(new)} test molecules")
    return error


if __name__ == "__main__":
    main()
