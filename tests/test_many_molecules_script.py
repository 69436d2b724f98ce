"""A million molecules: variants that are different, valid, and the same each time."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from load_script import load_script
from rdkit import Chem
from rdkit.Chem.Crippen import MolLogP

SMILES = ["CCc1ccc(N(C)C(=O)c2ccc(C)s2)cc1", "COc1cc(C)ccc1OCC(=O)NCCF", "C[C@H](O)c1ccccc1Cl"]


def test_the_files_hold_different_molecules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(tmp_path / "zinc.csv.gz", "wt") as file:
        file.write("\n".join(["smiles,logP", *(f"{smiles},0" for smiles in SMILES)]) + "\n")
    script = load_script("many_molecules", monkeypatch)
    contents = []
    for name in ("one", "two"):
        script.main(tmp_path, tmp_path / name, 60)
        files = sorted((tmp_path / name).iterdir())
        contents.append([file.read_text() for file in files])
    assert contents[0] == contents[1]
    assert len(contents[0]) == script.NUM_FILES
    rows = [row for text in contents[0] for row in csv.DictReader(text.splitlines())]
    molecules = [Chem.MolFromSmiles(row["smiles"]) for row in rows]
    assert len({Chem.MolToSmiles(molecule) for molecule in molecules}) == 60
    sizes = {Chem.MolFromSmiles(smiles).GetNumAtoms() for smiles in SMILES}
    assert {molecule.GetNumAtoms() for molecule in molecules} == sizes
    for row, molecule in zip(rows, molecules, strict=True):
        assert float(row["logP"]) == pytest.approx(MolLogP(molecule), abs=1e-4)


def test_too_few_molecules_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "zinc.csv.gz", "wt") as file:
        file.write("smiles\nCl\n")
    script = load_script("many_molecules", monkeypatch)
    with pytest.raises(SystemExit, match="1 different molecules, and 60 are wanted"):
        script.main(tmp_path, tmp_path / "out", 60)
