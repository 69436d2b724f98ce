"""Reading: the same bits from any number of processes, and equal to plain calls of RDKit."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rdkit import Chem, rdBase
from rdkit.Chem import BondStereo, BondType, HybridizationType
from rdkit.Chem.rdCIPLabeler import AssignCIPLabels
from thinned import thinned

from graphfold.dag import GraphBuilder, TypedDAG, collate, split
from graphfold.dag.compare import difference
from graphfold.datasets.adapter import Record, read_records
from graphfold.datasets.molecules.molecule import read_molecule
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.datasets.storage import reading
from graphfold.datasets.storage.reading import cut_file, read_chunks
from graphfold.errors import RecordError
from graphfold.registry import FEATURE_SETS

#: Where the corpora have their SMILES.
CORPORA = {
    "esol/delaney-processed.csv": "smiles",
    "freesolv/SAMPL.csv": "smiles",
    "lipophilicity/Lipophilicity.csv": "smiles",
    "bbbp/BBBP.csv": "SMILES",
    "tox21/tox21.csv": "smiles",
    "hiv/HIV.csv.gz": "smiles",
    "qm7/qm7.csv": "smiles",
    "qm8/qm8.csv.gz": "smiles",
    "qm9/qm9_hc.csv.gz": "smiles",
    "zinc250k_subset/valid.csv.gz": "smiles",
}

#: What is rare in corpora, and what RDKit's binary form has marks for that are unknown to us.
STRANGE = [
    *("[CH3]C", "*C", "[2H]C([13CH3])[999CH3]", "C->[Fe]", "[Na+].[Cl-]", "[CH3].[O][O]", "C"),
    *("C$C", "*~*", "F/C=C/F", "F/C=C\\F", "O[C@H]1C[C@@H](C)C1", "F[Co@OH5](Cl)(Br)(I)N"),
    *("[O-2].[N+5].[C-6]", "C" * 255, "C" * 256, "N[C@@H](C)C(=O)" * 60, "c1ccccc1-c1ccccc1"),
    *("C1CC1C1CC1", "[H][H]", "C1CC2CC1C2", "S(F)(F)(F)(F)(F)F", "CC |$R1;$|", "[Og]", "CC=CC"),
    *("[D]OC", "[#1]OC", "C[H]", "[H]/N=C/C", "[nH]1cc[n+]([H])c1", "C1=CC=CC=C1\\C=C\\[Hg]C"),
    *("C[C@H]1CC[C@@H](CC1)O", "C/C=C/C=C\\C", "[nH]1cccc1", "CN(=O)=O", "[CH-]1C=CC=C1"),
]


def corpus_smiles(root: Path, count: int) -> list[str]:
    """`count` SMILES evenly from the corpora, readable or not."""
    found: list[str] = []
    for name, column in CORPORA.items():
        path = root / name
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            rows = [row[column] for row in csv.DictReader(file)]
        found += rows[:: max(len(rows) * len(CORPORA) // count, 1)]
    return found[:count]


def code(value: Any, known: Any) -> int:
    return [*known].index(value) if value in known else len(known)


def plain_atom(atom: Chem.Atom) -> dict[str, int]:
    """The features `graphfold` of one atom, by one call of RDKit for each."""
    hybrids = ("UNSPECIFIED", "S", "SP", "SP2", "SP3", "SP2D", "SP3D", "SP3D2")
    label = "none"
    if atom.GetChiralTag() != Chem.ChiralType.CHI_UNSPECIFIED:
        label = atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else "?"
    common = Chem.GetPeriodicTable().GetMostCommonIsotope(atom.GetAtomicNum())
    shift = atom.GetIsotope() - common
    isotope = 1 + code(shift, range(-8, 9)) if atom.GetIsotope() else 0
    return {
        "element": atom.GetAtomicNum(),
        "chirality": code(label, ("none", "R", "S", "r", "s")),
        "degree": code(atom.GetTotalDegree(), range(11)),
        "charge": code(atom.GetFormalCharge(), range(-5, 6)),
        "hydrogens": code(atom.GetTotalNumHs(), range(9)),
        "radicals": code(atom.GetNumRadicalElectrons(), range(5)),
        "hybridization": code(
            atom.GetHybridization(), [getattr(HybridizationType, name) for name in hybrids]
        ),
        "aromatic": int(atom.GetIsAromatic()),
        "in_ring": int(atom.IsInRing()),
        "isotope": isotope,
    }


def plain_bond(bond: Chem.Bond) -> dict[str, int]:
    """The features `graphfold` of one bond."""
    orders = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "DATIVE")
    stereo = code(bond.GetStereo(), [getattr(BondStereo, f"STEREO{n}") for n in ("NONE", "E", "Z")])
    if stereo == 3 and bond.HasProp("_CIPCode"):
        stereo = code(bond.GetProp("_CIPCode"), ("none", "E", "Z"))
    return {
        "order": code(bond.GetBondType(), [getattr(BondType, name) for name in orders]),
        "stereo": stereo,
        "conjugated": int(bond.GetIsConjugated()),
        "in_ring": int(bond.IsInRing()),
    }


def labelled(smiles: str) -> Chem.Mol:
    molecule = Chem.MolFromSmiles(smiles)
    centres = [a.GetIdx() for a in molecule.GetAtoms() if a.GetChiralTag()]
    centres = [i for i in centres if not molecule.GetAtomWithIdx(i).HasProp("_CIPCode")]
    if centres:
        with suppress(RuntimeError):  # too large a symmetry: no label
            AssignCIPLabels(molecule, centres, [], 10_000)
    return molecule


def check_plain(dag: TypedDAG, smiles: str, directed_bonds: bool) -> None:
    """One graph against a loop over the atoms and bonds of its molecule."""
    with rdBase.BlockLogs():
        molecule = labelled(smiles)
    atoms = [plain_atom(atom) for atom in molecule.GetAtoms()]
    columns = dag.features("atom")
    assert [dict(zip(columns, row, strict=True)) for row in rows_of(columns)] == atoms
    ends, bonds = [], []
    for bond in molecule.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        ends += [(begin, end), (end, begin)]
        bonds += [plain_bond(bond)] * 2
    keys = [(*bonds[i].values(), *atoms[a].values()) for i, (a, _) in enumerate(ends)]
    arriving = [
        sorted((i for i, (_, b) in enumerate(ends) if b == atom), key=keys.__getitem__)
        for atom in range(len(atoms))
    ]
    if not directed_bonds:
        order = list(itertools.chain.from_iterable(arriving))
        assert edges(dag, "bond") == [ends[i] for i in order]
        found = dag.columns["relation:bond"]
        assert [dict(zip(found, row, strict=True)) for row in rows_of(found)] == [
            bonds[i] for i in order
        ]
        return
    first = len(atoms)
    assert edges(dag, "arrives") == [(first + i, ends[i][1]) for a in arriving for i in a]
    assert edges(dag, "continues") == [
        (first + before, first + i)
        for i, (source, _) in enumerate(ends)
        for before in arriving[source]
        if ends[before] != ends[i][::-1]
    ]
    source_of = [{f"source_{k}": v for k, v in atoms[a].items()} for a, _ in ends]
    expected = [bond | source for bond, source in zip(bonds, source_of, strict=True)]
    found = dag.features("bond")
    assert [dict(zip(found, row, strict=True)) for row in rows_of(found)] == expected


def rows_of(columns: Any) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns.values()), strict=True)


def edges(dag: TypedDAG, relation: str) -> list[tuple[int, int]]:
    found = dag.relations[relation]
    targets = [n for n, count in enumerate(found.ptr.diff().tolist()) for _ in range(count)]
    return list(zip(found.index.tolist(), targets, strict=True))


@pytest.mark.parametrize(
    ("mapped", "plain"),
    [
        ("[CH3:1][CH2:2][OH:3]", "[CH3][CH2][OH]"),
        ("[CH3:1][C@H:7](O)[CH3:2]", "[CH3][C@H](O)[CH3]"),  # no centre
        ("[CH3:1]/[CH:12]=C(/C)[CH3:2]", "[CH3]/[CH]=C(/C)[CH3]"),
        ("[*:1]c1:c:c:c:c:c:1[H:3]", "[*]c1:c:c:c:c:c:1[H]"),
        ("[2H:5]O |$;a:1]$|", "[2H]O |$;a:1]$|"),
    ],
)
@pytest.mark.parametrize("explicit_hydrogens", [False, True])
def test_atom_maps_are_no_part_of_a_molecule(mapped, plain, explicit_hydrogens):
    found, expected = (read_molecule(text, explicit_hydrogens) for text in (mapped, plain))
    assert found.ToBinary() == expected.ToBinary()


def records(smiles: list[str]) -> list[Record]:
    return [Record(line, RecordRow(text)) for line, text in enumerate(smiles, start=1)]


def check_all(smiles: list[str], directed_bonds: bool) -> None:
    adapter = SmilesAdapter(directed_bonds=directed_bonds)
    result = read_records(adapter, Path("x"), records(smiles), "skip")
    assert len(result.kept) + len(result.skipped) == len(smiles)
    for graph, position in zip(split(result.dag), result.kept, strict=True):
        check_plain(graph, smiles[position].strip(), directed_bonds)


@pytest.mark.parametrize("directed_bonds", [False, True])
def test_strange_molecules_are_as_rdkit_says(directed_bonds):
    check_all(STRANGE, directed_bonds)


@pytest.mark.parametrize("directed_bonds", [False, True])
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_molecules_of_all_corpora_are_as_rdkit_says(data_root, count, directed_bonds):
    check_all(corpus_smiles(data_root, count), directed_bonds)


@pytest.mark.parametrize("directed_bonds", [False, True])
@pytest.mark.parametrize("features", FEATURE_SETS.names())
def test_many_at_once_are_as_one_by_one(features, directed_bonds):
    adapter = SmilesAdapter(features=features, directed_bonds=directed_bonds)
    mixed = records([*STRANGE, "bad", "", *STRANGE])
    many = read_records(adapter, Path("x"), mixed, "skip")
    builder, errors = GraphBuilder(adapter.schema, "x"), []
    for record in mixed:
        before = builder.num_graphs
        with suppress(RecordError):
            adapter.parse(record, builder)
        if builder.num_graphs == before:
            errors.append(record.line)
    single = builder.build()
    assert [error.line for error in many.skipped] == errors
    assert difference(many.dag, single) is None
    assert many.dag.origin.tolist() == single.origin.tolist()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contract") / "m.csv"
    lines = [*STRANGE, "bad", "", *STRANGE] * 15
    path.write_text("name,smiles\n" + "".join(f"m,{smiles}\n" for smiles in lines))
    return path


@pytest.mark.parametrize(
    ("workers", "method"), thinned([(1, "fork"), (4, "fork"), (2, "spawn")], [(4, "fork")])
)
def test_the_processes_do_not_matter(table, workers, method, monkeypatch):
    adapter = SmilesAdapter(directed_bonds=True)
    here = [result for _, result in read_chunks(cut_file(adapter, table), "skip", 0)]
    monkeypatch.setattr(reading, "start_method", lambda: method)
    there = [result for _, result in read_chunks(cut_file(adapter, table), "skip", workers)]
    assert len(here) > 2
    assert [r.kept for r in here] == [r.kept for r in there]
    assert [str(e) for r in here for e in r.skipped] == [str(e) for r in there for e in r.skipped]
    assert difference(collate([r.dag for r in here]), collate([r.dag for r in there])) is None
