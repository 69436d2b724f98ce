"""Features from a quantum-chemical calculation, for `data.features_from`: extended Hückel by RDKit.

    python examples/qm_features.py solubility.csv qm.parquet
    graphfold train data=smiles data.path=solubility.csv data.target_columns=[logS] \\
        'data.features_from={graph: {file: qm.parquet, key: smiles, columns: [gap]},
        node: {file: qm.parquet, key: smiles, columns: [charge]},
        edge: {file: qm.parquet, key: smiles, columns: [population]}}'

The file has a row for each molecule: the gap between the highest occupied and the lowest empty
orbital (eV), the charge of each atom (e), and the overlap population of each bond, in the order of
RDKit's atoms and bonds of that SMILES. Another program's numbers are written in the same way.
Hoffmann (1963), https://doi.org/10.1063/1.1734456; the geometry is one of ETKDG.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet
from rdkit import Chem
from rdkit.Chem import rdDistGeom, rdEHTTools


def features(smiles: str) -> dict[str, Any] | None:
    """The features of a molecule; None if it has no geometry or no orbitals."""
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        return None
    whole = Chem.AddHs(molecule)  # hydrogens come after the atoms of the SMILES
    if rdDistGeom.EmbedMolecule(whole, randomSeed=0) != 0:
        return None
    is_done, result = rdEHTTools.RunMol(whole)
    if not is_done:
        return None
    energies, top = np.sort(result.GetOrbitalEnergies()), result.numElectrons // 2
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
    populations = result.GetReducedOverlapPopulationMatrix()  # the lower triangle, row by row
    return {
        "smiles": smiles,
        "gap": float(energies[min(top, len(energies) - 1)] - energies[top - 1]),
        "charge": result.GetAtomicCharges()[: molecule.GetNumAtoms()].tolist(),
        "population": [float(populations[j * (j + 1) // 2 + i]) for i, j in map(sorted, ends)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path, help="CSV with a column of SMILES")
    parser.add_argument("output", type=Path, help="Parquet with the features")
    parser.add_argument("--smiles", default="smiles", help="the column (smiles)")
    arguments = parser.parse_args()
    with arguments.table.open(encoding="utf-8") as file:
        every = dict.fromkeys(row[arguments.smiles] for row in csv.DictReader(file))
    rows = [row for row in map(features, every) if row is not None]
    parquet.write_table(pyarrow.Table.from_pylist(rows), arguments.output)
    print(f"{len(rows)} of {len(every)} molecules have features", file=sys.stderr)


if __name__ == "__main__":
    main()
