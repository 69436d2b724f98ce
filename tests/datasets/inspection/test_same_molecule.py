"""Groups, scaffolds, repeats, leaks and seen records: a molecule is one, however it is written."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
import torch
from rdkit import Chem

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import read_records
from graphfold.datasets.inspection.graph_hash import (
    describe_leak,
    hash_records,
    repeated_molecules,
)
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.splits.split import Split
from graphfold.datasets.splits.split_ways import (
    butina_groups,
    canonical_keys,
    molecule_groups,
    scaffold_groups,
)

FORMS = ("shuffled", "mapped", "kekulised", "hydrogens", "mapped hydrogens")


def written(smiles: str, form: str, seed: int) -> str:
    """A molecule in another form, its atoms in another order."""
    molecule = Chem.MolFromSmiles(smiles)
    if "hydrogens" in form:
        molecule = Chem.AddHs(molecule)
    if form == "kekulised":
        Chem.Kekulize(molecule, clearAromaticFlags=True)
    if "mapped" in form:
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(1 + (atom.GetIdx() * 7 + seed) % 97)
    order = list(range(molecule.GetNumAtoms()))
    random.Random(seed).shuffle(order)
    return str(Chem.MolToSmiles(Chem.RenumberAtoms(molecule, order), canonical=False))


@pytest.fixture(scope="module")
def molecules(data_root: Path) -> list[str]:
    """Different ones, stereo isomers among them."""
    with (data_root / "lipophilicity" / "Lipophilicity.csv").open() as file:
        corpus = [row["smiles"] for row in csv.DictReader(file)]
    rare = ["CC(C)O", "C[C@H](N)O", "C[C@@H](N)O", "F/C=C/F", "F/C=C\\F", "[13CH4]", "C"]
    return [*rare, "C[S@](=O)c1ccccc1", *random.Random(3).sample(corpus, 20)]


def read(folder: Path, smiles: list[str], **options: str | bool) -> TypedDAG:
    path = folder / "m.csv"
    path.write_text("\n".join(["smiles", *smiles]) + "\n")
    adapter = SmilesAdapter(**options)  # type: ignore[arg-type]
    return read_records(adapter, path, adapter.records(path)).dag


@pytest.mark.parametrize(
    ("form", "options"),
    [
        *((form, {}) for form in FORMS),
        ("mapped hydrogens", {"features": "ogb"}),
        ("mapped hydrogens", {"directed_bonds": True}),
    ],
)
def test_a_molecule_is_one_however_it_is_written(molecules, form, options, tmp_path):
    count = len(molecules)
    others = [written(text, form, seed) for seed, text in enumerate(molecules)]
    dag = read(tmp_path, [*molecules, *others], **options)
    assert repeated_molecules(dag) == [[n, n + count] for n in range(count)]
    assert molecule_groups(dag) == [*range(count)] * 2
    assert canonical_keys(dag)[count:] == canonical_keys(dag)[:count]
    assert scaffold_groups(dag)[count:] == scaffold_groups(dag)[:count]
    assert butina_groups(dag)[count:] == butina_groups(dag)[:count]
    split = Split.of_parts([range(count), range(count, 2 * count - 1), [2 * count - 1]], "given")
    leak = describe_leak(dag, hash_records(dag), split)
    assert leak is not None
    assert leak.startswith(f"{count} records of val or test hold molecules that train has too")


def test_a_molecule_is_one_whatever_the_options_of_its_reading(tmp_path):
    """So `evaluate` knows the records of the training part by their molecules."""
    plain = hash_records(read(tmp_path, ["CCO", "c1ccccc1"]))
    for options in ({"explicit_hydrogens": True}, {"features": "ogb"}, {"fragments": "brics"}):
        assert torch.equal(hash_records(read(tmp_path, ["OCC", "C1=CC=CC=C1"], **options)), plain)


def test_a_reaction_is_one_by_both_sides_and_of_a_group_by_its_reactants(tmp_path):
    reactions = [
        "[CH3:1][CH2:2][OH:3]>>[CH2:1]=[CH2:2].[OH2:3]",
        "[OH:7][CH2:8][CH3:9]>>[OH2:7].[CH2:8]=[CH2:9]",  # the same
        "[CH3:1][CH2:2][OH:3]>>[CH3:1][CH:2]=[O:3]",  # of other products
        "[CH3:1][CH2:2][Cl:3].c1ccccc1>>[CH3:1][CH2:2]c1ccccc1.[ClH:3]",
        "[CH3:1][CH2:2][Cl:3]>c1ccccc1>[CH3:1][CH2:2]c1ccccc1.[ClH:3]",  # an agent is a reactant
    ]
    dag = read(tmp_path, reactions, reaction="reac_diff")
    assert molecule_groups(dag) == [0, 0, 2, 3, 3]
    assert repeated_molecules(dag) == [[0, 1], [3, 4]]
    assert canonical_keys(dag)[0] == "CCO>>C=C.O"
    assert scaffold_groups(dag) == ["", "", "", "c1ccccc1", "c1ccccc1"]
    clusters = butina_groups(dag)
    assert clusters[0] == clusters[1] == clusters[2] != clusters[3] == clusters[4]


def test_the_molecule_is_that_which_the_graph_is_made_of(tmp_path):
    salts = ["CCN.Cl", "NCC", "CCN.Br", "c1ccccc1.[Na+].[Cl-]"]
    assert molecule_groups(read(tmp_path, salts)) == [0, 1, 2, 3]
    stripped = read(tmp_path, salts, salts="strip")
    assert molecule_groups(stripped) == [0, 0, 0, 3]
    assert repeated_molecules(stripped) == [[0, 1, 2]]
