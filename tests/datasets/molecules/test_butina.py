"""Butina clusters equal those of RDKit, which takes all distances."""

from __future__ import annotations

from pathlib import Path

from rdkit import Chem
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from rdkit.DataStructs import BulkTanimotoSimilarity
from rdkit.ML.Cluster import Butina

from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.butina import butina_clusters


def of_rdkit(smiles: list[str], similarity: float) -> list[list[int]]:
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    prints = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    rows = (BulkTanimotoSimilarity(prints[k], prints[:k]) for k in range(1, len(prints)))
    distances = [1 - value for row in rows for value in row]
    found = Butina.ClusterData(distances, len(prints), 1 - similarity, isDistData=True)
    return [sorted(cluster) for cluster in found]


def members(clusters: list[int]) -> list[list[int]]:
    numbers = range(max(clusters) + 1)
    return [[k for k, own in enumerate(clusters) if own == number] for number in numbers]


def test_clusters_are_those_of_rdkit_on_a_corpus(data_root: Path) -> None:
    rows = open_table(data_root / "freesolv" / "SAMPL.csv")
    column = rows.columns.index("smiles")
    smiles = [cells[column] for _, cells, _ in rows.rows()][:400]
    for similarity in (0.35, 0.6):
        assert members(butina_clusters(smiles, similarity)) == of_rdkit(smiles, similarity)


def test_equal_and_similar_molecules_are_together() -> None:
    smiles = ["c1ccccc1CC", "CCc1ccccc1", "c1ccccc1CCC", "CCCCCCCCCC", "CCCCCCCCC", "[Na+].[Cl-]"]
    clusters = butina_clusters(smiles)
    assert members(clusters) == of_rdkit(smiles, 0.35)
    assert clusters[0] == clusters[1] == clusters[2]
    assert clusters[3] == clusters[4] != clusters[5]
    assert butina_clusters([]) == []
