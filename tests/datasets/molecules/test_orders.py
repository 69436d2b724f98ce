"""Values of atoms and bonds are in the order of the record: SDF, objects, SMILES."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem import rdDepictor

from graphfold.dag import TypedDAG, split
from graphfold.datasets.adapter import Record, read_records
from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter

#: Stereo centres and double bonds, charges, isotopes, salts, aromatic rings, atom maps.
MOLECULES = (
    *("OCC", "C[C@H](N)C(=O)O", "F/C=C\\Cl", "[O-][N+](=O)c1ccc[nH]1", "[2H]OC.[Na+].[Cl-]"),
    *("[CH3:2][CH2:1][OH:7]", "O[C@H]1C[C@@H](C)C1", "C[S@](=O)c1ccccc1", "[13CH3]C#N"),
)


@pytest.fixture(scope="module")
def shuffled(data_root: Path) -> list[Chem.Mol]:
    """Molecules with their atoms in random order."""
    with (data_root / "lipophilicity" / "Lipophilicity.csv").open() as file:
        corpus = [row["smiles"] for row in csv.DictReader(file)]
    rng = random.Random(49)
    return [renumbered(text, rng) for text in (*MOLECULES, *rng.sample(corpus, 25))]


def renumbered(smiles: str, rng: random.Random) -> Chem.Mol:
    molecule = Chem.MolFromSmiles(smiles)
    order = list(range(molecule.GetNumAtoms()))
    rng.shuffle(order)
    return Chem.RenumberAtoms(molecule, order)


def of_atom(molecule: Chem.Mol) -> list[int]:
    return [atom.GetAtomicNum() for atom in molecule.GetAtoms()]


def of_bond(molecule: Chem.Mol) -> list[int]:
    ends = ((bond.GetBeginAtom(), bond.GetEndAtom()) for bond in molecule.GetBonds())
    return [a.GetAtomicNum() * b.GetAtomicNum() for a, b in ends]


def write_sdf(
    path: Path, molecules: list[Chem.Mol], write: Callable[[Chem.Mol], str], measured: str
) -> Path:
    text = ""
    for molecule in molecules:
        drawn = Chem.Mol(molecule)
        rdDepictor.Compute2DCoords(drawn)
        values = of_atom(molecule) if measured == "atom" else of_bond(molecule)
        text += f"{write(drawn)}> <y>\n{json.dumps(values)}\n\n$$$$\n"
    path.write_text(text)
    return path


def read_sdf(
    folder: Path,
    molecules: list[Chem.Mol],
    form: str,
    measured: str = "atom",
    **options: bool | str,
) -> list[TypedDAG]:
    write = Chem.MolToMolBlock if form == "V2000" else Chem.MolToV3KMolBlock
    path = write_sdf(folder / "m.sdf", molecules, write, measured)
    columns = {f"{measured}_target_columns": "y"}
    adapter = SmilesAdapter(**columns, **options)
    return split(read_records(adapter, path, adapter.records(path)).dag)


def read_objects(molecules: list[Chem.Mol], **options: bool) -> list[TypedDAG]:
    adapter = SmilesAdapter(**options).without_targets()
    records = [adapter.record_of(molecule) for molecule in molecules]
    return split(read_records(adapter, Path("x"), records).dag)


def check_atoms(dag: TypedDAG, molecule: Chem.Mol, hydrogens: bool | str = False) -> None:
    """The features of the atoms, and what they cover in the SMILES, against RDKit's molecule."""
    features = dag.features("atom")
    assert features["element"].tolist() == of_atom(molecule)
    assert features["degree"].tolist() == [a.GetTotalDegree() for a in molecule.GetAtoms()]
    shown = read_molecule(dag.strings("graph", "smiles")[0] or "", hydrogens)
    places = dag.span[:, 0].tolist()[: molecule.GetNumAtoms()]
    assert sorted(places) == list(range(shown.GetNumAtoms()))
    assert [shown.GetAtomWithIdx(place).GetAtomicNum() for place in places] == of_atom(molecule)
    for bond in molecule.GetBonds():
        ends = places[bond.GetBeginAtomIdx()], places[bond.GetEndAtomIdx()]
        assert shown.GetBondBetweenAtoms(*ends).GetBondType() == bond.GetBondType()


@pytest.mark.parametrize("form", ["V2000", "V3000"])
def test_values_of_atoms_are_those_of_the_structure(shuffled, form, tmp_path):
    for dag, molecule in zip(read_sdf(tmp_path, shuffled, form), shuffled, strict=True):
        assert dag.node_targets["y"].tolist() == of_atom(molecule)
        check_atoms(dag, molecule)


@pytest.mark.parametrize("hydrogens", [True, "written"])
def test_values_of_written_hydrogens(hydrogens, shuffled, tmp_path):
    full = [Chem.AddHs(molecule) for molecule in shuffled]
    rng = random.Random(3)
    orders = [rng.sample(range(m.GetNumAtoms()), m.GetNumAtoms()) for m in full]
    full = [Chem.RenumberAtoms(m, order) for m, order in zip(full, orders, strict=True)]
    dags = read_sdf(tmp_path, full, "V2000", explicit_hydrogens=hydrogens)
    for dag, molecule in zip(dags, full, strict=True):
        assert dag.node_targets["y"].tolist() == of_atom(molecule)
        check_atoms(dag, molecule, hydrogens)


@pytest.mark.parametrize("form", ["V2000", "V3000"])
def test_values_of_bonds_are_those_of_the_structure(shuffled, form, tmp_path):
    bound = [molecule for molecule in shuffled if molecule.GetNumBonds()]
    for dag, molecule in zip(read_sdf(tmp_path, bound, form, "bond"), bound, strict=True):
        is_bond = dag.op_type == 1
        assert dag.node_targets["y"][is_bond].tolist() == of_bond(molecule)
        ends = [{b.GetBeginAtomIdx(), b.GetEndAtomIdx()} for b in molecule.GetBonds()]
        assert [{*pair} for pair in dag.input_index.view(-1, 2).tolist()] == ends


def kekulised(molecule: Chem.Mol) -> Chem.Mol:
    copy = Chem.Mol(molecule)
    Chem.Kekulize(copy, clearAromaticFlags=True)
    return copy


@pytest.mark.parametrize(
    "change",
    [Chem.Mol, Chem.AddHs, kekulised, lambda m: Chem.RenumberAtoms(m, [*range(m.GetNumAtoms())])],
    ids=["as it is", "hydrogens", "kekulised", "renumbered"],
)
def test_atoms_of_an_object_are_in_its_order(shuffled, change):
    dags = read_objects([change(molecule) for molecule in shuffled])
    for dag, molecule in zip(dags, shuffled, strict=True):
        check_atoms(dag, molecule)


@pytest.mark.parametrize("features", ["graphfold", "ogb"])
def test_a_structure_has_the_features_of_its_smiles(shuffled, features, tmp_path):
    """Atom by atom, except for the chirality tag of `ogb`, which depends on their order."""
    adapter = SmilesAdapter(features=features).without_targets()
    path = write_sdf(tmp_path / "m.sdf", shuffled, Chem.MolToMolBlock, "atom")
    structures = read_records(adapter, path, adapter.records(path)).dag
    texts = [text or "" for text in structures.strings("graph", "smiles")]
    written = read_records(adapter, path, [Record(1, RecordRow(text)) for text in texts]).dag
    for one, other in zip(split(structures), split(written), strict=True):
        rows, wanted = (
            [column.tolist() for name, column in dag.features("atom").items() if name != skipped]
            for dag, skipped in ((one, "chirality"), (other, "chirality"))
        )
        places = one.span[:, 0].tolist()
        assert rows == [[column[place] for place in places] for column in wanted]
        if features == "graphfold":
            labels = other.features("atom")["chirality"][places]
            assert one.features("atom")["chirality"].tolist() == labels.tolist()
