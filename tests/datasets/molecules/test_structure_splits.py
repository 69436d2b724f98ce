"""Scaffolds of molecules."""

from __future__ import annotations

import pytest

from graphfold.datasets.molecules.structure_splits import murcko_scaffolds

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
