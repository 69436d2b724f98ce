"""Splits by name against RDKit, scikit-learn, or a few lines of NumPy."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import numpy as np
import pytest
from rdkit import Chem, DataStructs
from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
from rdkit.ML.Cluster import Butina

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.settings import DataSettings
from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_records import Records, split_records
from graphfold.datasets.storage.store import GraphCorpus

RINGS = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1", "c1ccoc1", "c1ccc2ccccc2c1", "C1CCNC1", "")
TAILS = ("C", "CC", "CCO", "C(=O)O", "CN", "CCl", "CCCC", "C(C)C", "OC", "N", "C#N")
FRACTIONS = (0.7, 0.2, 0.1)


@pytest.fixture(scope="module")
def smiles() -> list[str]:
    texts = [(ring or "CCC") + tail for n, ring in enumerate(RINGS) for tail in TAILS[: 11 - n]]
    return [texts[k] for k in np.random.default_rng(0).permutation(len(texts))]


@pytest.fixture(scope="module")
def dag(smiles: list[str], tmp_path_factory: pytest.TempPathFactory) -> TypedDAG:
    path = tmp_path_factory.mktemp("data") / "m.csv"
    kinds = np.random.default_rng(1).choice(4, len(smiles), p=[0.6, 0.25, 0.1, 0.05])
    rows = [f"{text},{kind}\n" for text, kind in zip(smiles, kinds, strict=True)]
    path.write_text("smiles,kind\n" + "".join(rows))
    adapter = SmilesAdapter(target_columns=["kind"], task="classification", num_classes=4)
    return read_records(adapter, path, adapter.records(path)).dag


def split(dag: TypedDAG, name: str, **settings: object) -> Split:
    chosen = DataSettings(split=name, fractions=FRACTIONS, **settings)  # type: ignore[arg-type]
    return split_records(Records(GraphCorpus([dag]), [None], [dag.num_graphs]), chosen)


def filled(keys: list[object]) -> list[list[int]]:
    """Groups by size, descending, the last of equal ones first, into train, val and test."""
    groups = defaultdict(list)
    for record, key in enumerate(keys):
        groups[key].append(record)
    train_size, val_size = round(0.7 * len(keys)), round(0.2 * len(keys))
    parts: list[list[int]] = [[], [], []]
    for group in sorted(groups.values(), key=lambda own: (-len(own), -own[0])):
        if len(parts[0]) + len(group) <= train_size:
            parts[0] += group
        elif len(parts[1]) + len(group) <= val_size:
            parts[1] += group
        else:
            parts[2] += group
    return [sorted(part) for part in parts]


def records_of(found: Split) -> list[list[int]]:
    return [found.part(name).tolist() for name in ("train", "val", "test")]


def test_scaffolds_are_those_of_rdkit(dag, smiles):
    keys = [MurckoScaffoldSmiles(text, includeChirality=False) for text in smiles]
    assert len(set(keys)) == len(RINGS)
    assert records_of(split(dag, "scaffold")) == filled(keys)
    balanced = records_of(split(dag, "scaffold_balanced", seed=3))
    assert sorted(chain.from_iterable(balanced)) == list(range(len(smiles)))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not {keys[k] for k in balanced[one]} & {keys[k] for k in balanced[other]}


def test_clusters_are_those_of_rdkit(dag, smiles):
    generator = GetMorganGenerator(radius=2, fpSize=2048)
    prints = [generator.GetFingerprint(Chem.MolFromSmiles(text)) for text in smiles]
    distances = []
    for k in range(1, len(prints)):
        near = DataStructs.BulkTanimotoSimilarity(prints[k], prints[:k])
        distances += [1 - similarity for similarity in near]
    clusters = Butina.ClusterData(distances, len(prints), 0.65, isDistData=True)
    number = {record: n for n, cluster in enumerate(clusters) for record in cluster}
    assert 1 < len(clusters) < len(smiles)
    assert records_of(split(dag, "butina")) == filled([number[k] for k in range(len(smiles))])
