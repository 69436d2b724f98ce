"""Scaffolds of molecules; Butina clusters are those of RDKit, which takes all distances."""

from __future__ import annotations

import pytest
from rdkit import Chem
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from rdkit.DataStructs import BulkTanimotoSimilarity
from rdkit.ML.Cluster import Butina

from graphfold.datasets.molecules.structure_splits import butina_clusters, murcko_scaffolds
from graphfold.errors import RecordError

CASES = {
    "CCO": "",
    "[Na+].[Cl-]": "",
    "[H][H]": "",
    "Cc1cc(Oc2nccc(CCC)c2)ccc1": "c1ccc(Oc2ccccn2)cc1",
    "CC(=O)C1CCC(=O)CC1": "O=C1CCCCC1",
    "C1CC1CC(=O)CC1CC1": "O=C(CC1CC1)CC1CC1",
    "Cn1cccc1": "c1cc[nH]c1",
    "F[C@H]1CC[C@@H](C)CC1": "C1CCCCC1",
    "c1ccccc1C.Cc1ccncc1.CC": "c1ccccc1.c1ccncc1",
    "C[N+]1(C)CCCCC1": "C1CC[NH2+]CC1",
    "C=Cc1ccccc1": "c1ccccc1",
    "*c1ccccc1": "c1ccccc1",
    "[H]c1ccccc1[H]": "c1ccccc1",
}


@pytest.mark.parametrize(("smiles", "scaffold"), CASES.items())
def test_scaffold(smiles, scaffold):
    assert murcko_scaffolds([smiles]) == [scaffold]


def test_there_is_one_scaffold_for_each_smiles_in_order():
    assert murcko_scaffolds([]) == []
    assert murcko_scaffolds([*CASES, *CASES]) == [*CASES.values(), *CASES.values()]


def test_a_bad_smiles_is_refused():
    with pytest.raises(RecordError, match=r"'C1CC' \(unclosed ring\)"):
        murcko_scaffolds(["C", "C1CC"])


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


def test_equal_and_similar_molecules_are_together() -> None:
    smiles = ["c1ccccc1CC", "CCc1ccccc1", "c1ccccc1CCC", "CCCCCCCCCC", "CCCCCCCCC", "[Na+].[Cl-]"]
    clusters = butina_clusters(smiles)
    assert members(clusters) == of_rdkit(smiles, 0.35)
    assert clusters[0] == clusters[1] == clusters[2]
    assert clusters[3] == clusters[4] != clusters[5]
    assert butina_clusters([]) == []
