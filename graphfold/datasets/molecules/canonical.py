"""Canonical SMILES: one text for a molecule, however it was written."""

from __future__ import annotations

from collections.abc import Sequence

from rdkit import Chem

from graphfold.datasets.molecules.molecule import read_molecule


def canonical_smiles(smiles: Sequence[str]) -> list[str]:
    """RDKit's canonical SMILES of each molecule, stereo marks and salts included.

    Raises:
        RecordError: if RDKit cannot read one of the SMILES.
    """
    return [str(Chem.MolToSmiles(read_molecule(text))) for text in smiles]
