"""Penalised logP: its parts, and the tables of ZINC molecules with it."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem import Crippen

from graphfold.datasets.corpora.corpus_makers import make_zinc_plogp
from graphfold.datasets.files.tables import open_table
from graphfold.datasets.molecules.penalised_logp import penalised_logp
from graphfold.errors import ConfigError, DataError


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "zinc250k_subset"
    folder.mkdir()
    (folder / "valid.csv").write_text("smiles\nCCO\nOCC\nC1CCCCCCC1\n")
    (folder / "test.csv").write_text("smiles\nc1ccccc1\nCC\n")
    return tmp_path


def test_parts_add_up():
    found = penalised_logp(Chem.MolFromSmiles("C1CCCCCCC1"))
    assert found.ring_excess == 2
    assert found.log_p == Crippen.MolLogP(Chem.MolFromSmiles("C1CCCCCCC1"))
    want = (
        (found.log_p - 2.4570953396190123) / 1.434324401111988
        + (-found.accessibility + 3.0525811293166134) / 0.8335207024513095
        + (-2 + 0.0485696876403053) / 0.2860212110245455
    )
    assert found.total == pytest.approx(want)


@pytest.mark.parametrize(
    ("smiles", "excess"), [("CC", 0), ("C1CC1", 0), ("C1CCCCC1", 0), ("C1CCCCCC1", 1)]
)
def test_small_rings_cost_nothing(smiles, excess):
    assert penalised_logp(Chem.MolFromSmiles(smiles)).ring_excess == excess


def test_no_molecule_is_drawn_twice(root, tmp_path):
    made = make_zinc_plogp(tmp_path / "cache", root, 2, 1, 1)
    assert [part for _, part in made] == ["train", "val", "test"]
    smiles = [row["smiles"] for path, _ in made for row in table(path)]
    assert len({Chem.CanonSmiles(text) for text in smiles}) == 4
    again = make_zinc_plogp(tmp_path / "other", root, 2, 1, 1)
    assert [p.read_bytes() for p, _ in again] == [p.read_bytes() for p, _ in made]
    other = make_zinc_plogp(tmp_path / "cache", root, 2, 1, 1, choice_seed=1)
    assert {p.parent for p, _ in other}.isdisjoint(p.parent for p, _ in made)
    for path, _ in made:
        for row in table(path):
            found = penalised_logp(Chem.MolFromSmiles(row["smiles"]))
            assert float(row["plogp"]) == pytest.approx(found.total)


def test_too_few_molecules(root, tmp_path):
    with pytest.raises(DataError, match="molecules for 1 of the 2 records of test. Set smaller"):
        make_zinc_plogp(tmp_path, root, 2, 1, 2)
    with pytest.raises(ConfigError, match=r"data.val_size is 0. Give at least 1"):
        make_zinc_plogp(tmp_path, root, 2, 0, 2)
    with pytest.raises(DataError, match=r"valid.csv.gz: no such file. Get it from .*molminer"):
        make_zinc_plogp(tmp_path, tmp_path / "nowhere", 2, 1, 2)


def test_logp_and_accessibility_are_those_that_zinc_comes_with(data_root):
    source = data_root / "zinc250k_subset" / "valid.csv.gz"
    if not source.exists():
        pytest.skip(f"no {source}")
    rows = [
        dict(zip(("smiles", "logP", "qed", "SAS"), row.cells[:4], strict=True))
        for row, _ in zip(open_table(source).rows(), range(400), strict=False)
    ]
    found = [penalised_logp(Chem.MolFromSmiles(row["smiles"])) for row in rows]
    logp = [float(row["logP"]) for row in rows]
    assert [f.log_p for f in found] == pytest.approx(logp, abs=1e-6)
    # The file is of an older version of the score.
    accessibility = [float(row["SAS"]) for row in rows]
    assert statistics.correlation([f.accessibility for f in found], accessibility) > 0.99
    # Standardised over all of ZINC.
    assert abs(statistics.mean(f.total for f in found)) < 0.4
