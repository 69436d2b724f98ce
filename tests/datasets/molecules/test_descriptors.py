"""Descriptors against RDKit's functions; undefined and large values."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Descriptors as rdkit_descriptors
from rdkit.Chem import rdFingerprintGenerator

from graphfold.datasets.molecules.descriptors import Descriptors
from graphfold.errors import ConfigError

ASPIRIN = Chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O")


def test_rdkit2d_are_the_functions_of_the_list_in_order():
    descriptors = Descriptors(["rdkit2d"])
    (column,) = descriptors.columns
    values = descriptors.values(ASPIRIN)["rdkit2d"]
    want = np.array([function(ASPIRIN) for _, function in rdkit_descriptors.descList])
    assert (column.name, column.shape, column.dtype) == ("rdkit2d", (len(want),), "float32")
    np.testing.assert_array_equal(values, want.astype(np.float32))


@pytest.mark.parametrize("smiles", ["[Cu]", "*", "[H][H]", "C" * 300 + "O", "C.[Na+].[Cl-]"])
def test_what_is_undefined_or_too_large_is_missing(smiles, capfd):
    values = Descriptors(["rdkit2d"]).values(Chem.MolFromSmiles(smiles))["rdkit2d"]
    assert not np.isinf(values).any()
    assert np.isfinite(values).sum() > 200
    assert capfd.readouterr().err == ""


def test_morgan_counts_are_the_folded_sparse_counts():
    values = Descriptors(["morgan"], 3, 512).values(ASPIRIN)["morgan"]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=3)
    want = np.zeros(512, dtype=np.int64)
    for number, count in generator.GetSparseCountFingerprint(ASPIRIN).GetNonzeroElements().items():
        want[number % 512] += count
    np.testing.assert_array_equal(values, want)


@pytest.mark.parametrize(
    ("name", "generator"),
    [
        ("atom_pairs", rdFingerprintGenerator.GetAtomPairGenerator()),
        ("torsions", rdFingerprintGenerator.GetTopologicalTorsionGenerator()),
    ],
)
def test_other_counts_are_those_of_rdkit(name, generator):
    values = Descriptors([name]).values(ASPIRIN)[name]
    np.testing.assert_array_equal(values, generator.GetCountFingerprintAsNumPy(ASPIRIN))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["rdkit"],), r"no descriptors 'rdkit'\. Did you mean 'rdkit2d'\? Use some of rdkit2d"),
        ((["morgan", "morgan"],), r"names one twice: morgan, morgan\. Name each once"),
        (
            (["morgan"], -1),
            r"morgan_radius is -1 and fingerprint_size 2048\. Give a radius from 0 on",
        ),
        ((["morgan"], 2, 0), r"fingerprint_size 0\. Give"),
    ],
)
def test_wrong_options(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Descriptors(*arguments)  # type: ignore[arg-type]
