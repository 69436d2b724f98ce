"""Feature sets of users: functions in one file, by their dotted path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rdkit import Chem
from rdkit.Chem.rdPartialCharges import ComputeGasteigerCharges

from graphfold.dag import collate
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Record, read_records
from graphfold.datasets.molecules.atom_features import find_features
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.datasets.storage.packing import pack
from graphfold.datasets.storage.reading import cut_file, read_chunks
from graphfold.errors import ConfigError

CODE = """
from rdkit.Chem.rdchem import Atom, Bond
from rdkit.Chem.rdPartialCharges import ComputeGasteigerCharges
from graphfold.datasets.molecules.atom_features import FeatureSet, codes, flag, number, one_hot

def gasteiger(molecule):
    ComputeGasteigerCharges(molecule)
    return [atom.GetDoubleProp("_GasteigerCharge") for atom in molecule.GetAtoms()]

def ring_sizes(molecule):
    return [min((n for n in range(9) if b.IsInRingSize(n)), default=0) for b in molecule.GetBonds()]

MY_SET = FeatureSet(
    atom=(
        codes("element", Atom.GetAtomicNum, (6, 7, 8)),
        number("charge", gasteiger, of="molecule", unit="e"),
        one_hot("hydrogens", Atom.GetTotalNumHs, range(3), has_other=False),
    ),
    bond=(codes("ring", ring_sizes, range(9), has_other=False, of="molecule"),),
)
SHORT = FeatureSet(atom=(number("x", lambda molecule: [1.0], of="molecule"),), bond=())
CLOSED = FeatureSet(
    atom=(codes("element", Atom.GetAtomicNum, (6,), has_other=False),), bond=MY_SET.bond
)
def endless(atom):
    return float("inf") if atom.GetAtomicNum() == 8 else 0.5

ENDLESS = FeatureSet(atom=(number("x", endless),), bond=())
NO_SET = 3
"""
SMILES = ("CCO", "C1CC1N", "c1ccccc1C=O", "C", "N#CC1CCC1")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "features_of_mine.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "features_of_mine", raising=False)
    return "features_of_mine.MY_SET"


def records(*smiles: str) -> list[Record]:
    return [Record(line, RecordRow(text)) for line, text in enumerate(smiles, start=1)]


def test_its_functions_are_called_for_atoms_bonds_and_molecules(package):
    dag = read_records(SmilesAdapter(features=package), Path("x"), records(*SMILES)).dag
    molecules = [Chem.MolFromSmiles(text) for text in SMILES]
    atoms = [atom for molecule in molecules for atom in molecule.GetAtoms()]
    for molecule in molecules:
        ComputeGasteigerCharges(molecule)
    found = dag.features("atom")
    places = {6: 0, 7: 1, 8: 2}
    assert found["element"].tolist() == [places[atom.GetAtomicNum()] for atom in atoms]
    charges = [atom.GetDoubleProp("_GasteigerCharge") for atom in atoms]
    assert found["charge"].tolist() == pytest.approx(charges, abs=1e-6)
    assert found["hydrogens"].tolist() == [
        [atom.GetTotalNumHs() == place for place in range(3)] for atom in atoms
    ]
    rings = dag.columns["relation:bond"]["ring"].tolist()
    assert {size: rings.count(size) for size in {*rings}} == {0: 14, 3: 6, 4: 8, 6: 12}
    assert dag.schema.types[0].features[1].unit == "e"


def test_a_set_goes_to_other_processes(package, tmp_path):
    adapter, file = SmilesAdapter(features=package), tmp_path / "m.csv"
    file.write_text("smiles\n" + "\n".join(SMILES * 4) + "\n")
    chunks = [*cut_file(adapter, file, size=5)]
    here, there = (
        collate([result.dag for _, result in read_chunks(iter(chunks), "skip", workers)])
        for workers in (0, 1)
    )
    assert here.num_graphs == 20
    assert difference(here, there) is None


@pytest.mark.parametrize(
    ("name", "smiles", "fault"),
    [
        ("ENDLESS", "CO", "'x' cannot be computed .ValueError: inf is not finite"),
        ("SHORT", "CC", "'x' cannot be computed .ValueError: 1 values for 2 atoms or bonds"),
        ("CLOSED", "CO", "'element' cannot be computed .ValueError: 8 is not among its values"),
    ],
)
def test_what_a_function_cannot_do_is_a_bad_record(package, name, smiles, fault):
    adapter = SmilesAdapter(features=f"features_of_mine.{name}")
    result = read_records(adapter, Path("x"), records("C", smiles, "C"), "skip")
    assert result.kept == (0, 2)
    with pytest.raises(Exception, match=rf"x:2: the feature {fault}"):
        raise result.skipped[0]


def test_a_name_without_a_set_is_refused(package):
    with pytest.raises(ConfigError, match="there is no feature set 'ogbb'. Did you mean 'ogb'"):
        find_features("ogbb")
    with pytest.raises(ConfigError, match="data.features: no FeatureSet is there, but int"):
        find_features("features_of_mine.NO_SET")
    with pytest.raises(
        ConfigError, match=r"data.features=\['ogb'\] names no feature set. Set data"
    ):
        find_features(["ogb"])  # type: ignore[arg-type]


def test_the_cache_depends_on_the_code_of_the_set(package, tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("smiles\n" + "\n".join(SMILES) + "\n")
    spec = AdapterSpec("smiles", {"features": package})
    first = pack(spec, file, tmp_path / "cache", num_workers=0)
    again = pack(spec, file, tmp_path / "cache", num_workers=0)
    assert first.stored == again.stored
    (tmp_path / "features_of_mine.py").write_text(f"{CODE}# changed")
    changed = pack(spec, file, tmp_path / "cache", num_workers=0)
    assert changed.stored != first.stored
