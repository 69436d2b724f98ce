"""Condensed graphs of reactions, against the paper's formula with chemprop's features."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rdkit import Chem

from graphfold.dag import TypedDAG, validate
from graphfold.dag.collate import split
from graphfold.datasets.adapter import read_records
from graphfold.datasets.molecules import feature_sets
from graphfold.datasets.molecules.atom_features import FeatureSet, codes
from graphfold.datasets.molecules.feature_sets import GRAPHFOLD
from graphfold.datasets.molecules.reactions import MODES
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError, RecordError

#: An agent and a lone hydrogen molecule; atoms of one side alone, bound to each other and to atoms
#: of both; an atom without a map; a configuration that RDKit reads out of the maps; a dative bond.
REACTIONS = [
    "[CH3:1][CH2:2][OH:3].O>CCN>[CH3:1][CH:2]=[O:3].[H][H]",
    "[CH3:1][Br:2].CC>>[CH3:1]C.[Br-:2]",
    "[CH3:1]C(=O)OC>>[CH3:1]Cc1ccccc1.[Na+].Cl",
    "C[CH2:1]/C=C/C>>[CH2:1]1CC1",
    "[H:3][C:1]([H:5])([H:6])[O:2][H:4]>>[C:1](=[O:2])([H:6])[H:5].[H:3][H:4]",
    "[C:1](/[C:2](=[C:6](/[Cl:4])[C:7]([H:15])([H:16])[H:17])[H:11])([H:8])([H:9])[H:10]"
    ">>[C:1](/[C:2](=[C:6](/[Cl:4])[C:7]([H:15])([H:16])[H:17])[H:11])([H:8])([H:9])[H:10]",
    "[CH3:1][NH2:2]>>[CH3:1][NH2:2]->[Pd]",
    "[Br-:1].[CH3+:2]>>[CH3:2][Br:1]",
]

_H, _B = Chem.HybridizationType, Chem.BondType
ELEMENTS = [*range(1, 37), 53]


def dag_of(texts: Sequence[str], mode: str = "reac_diff", **options: Any) -> TypedDAG:
    options = {"explicit_hydrogens": "written", **options}
    adapter = SmilesAdapter(reaction=mode, **options)  # type: ignore[arg-type]
    dag = read_records(adapter, Path("x"), [adapter.record_of(text) for text in texts]).dag
    validate(dag)
    return dag


# chemprop's columns


def one_hot(value: Any, choices: Sequence[Any], has_other: bool = True) -> list[float]:
    row = [float(value == choice) for choice in choices]
    return [*row, float(value not in choices)] if has_other else row


def atom_row(atom: Chem.Atom | None) -> list[float]:
    """All but the element, which is known on both sides."""
    if atom is None:
        return [0.0] * 34
    return [
        *one_hot(atom.GetTotalDegree(), range(6)),
        *one_hot(atom.GetFormalCharge(), (-1, -2, 1, 2, 0)),
        *one_hot(int(atom.GetChiralTag()), range(4)),
        *one_hot(atom.GetTotalNumHs(), range(5)),
        *one_hot(
            atom.GetHybridization(), (_H.S, _H.SP, _H.SP2, _H.SP2D, _H.SP3, _H.SP3D, _H.SP3D2)
        ),
        atom.GetIsAromatic(),
        0.01 * atom.GetMass(),
    ]


def bond_row(bond: Chem.Bond | None) -> list[float]:
    if bond is None:
        return [1.0] + [0.0] * 13
    orders = (_B.SINGLE, _B.DOUBLE, _B.TRIPLE, _B.AROMATIC)
    rings = [bond.GetIsConjugated(), bond.IsInRing()]
    stereo = one_hot(int(bond.GetStereo()), range(6))
    return [0.0, *one_hot(bond.GetBondType(), orders, has_other=False), *rings, *stereo]


class Dense:
    """The condensed graph by the paper: every pair of atoms is looked up on both sides.

    Args:
        text: the reaction.
        mode: the mode's name.
        keeps_hydrogens: as `--keep-h` of chemprop.
    """

    def __init__(self, text: str, mode: str, keeps_hydrogens: bool) -> None:
        parameters = Chem.SmilesParserParams()
        parameters.removeHs = not keeps_hydrogens  # type: ignore[assignment]
        left, agents, right = re.split(r"(?<!-)>", text)
        texts = [".".join(filter(None, (left, agents))), right]
        molecules = [Chem.MolFromSmiles(side, parameters) for side in texts]
        self.mode, balances = mode.removesuffix("_balance"), mode.endswith("_balance")
        atoms = [[*molecule.GetAtoms()] for molecule in molecules]
        maps = {a.GetAtomMapNum(): a for a in atoms[1] if a.GetAtomMapNum()}
        pairs = [(a, maps.pop(a.GetAtomMapNum(), None)) for a in atoms[0]]
        taken = {b.GetIdx() for _, b in pairs if b is not None}
        pairs += [(None, b) for b in atoms[1] if b.GetIdx() not in taken]
        single = [None in pair for pair in pairs]
        self.bonds, rows = [], []
        for u in range(len(pairs)):
            for v in range(u + 1, len(pairs)):
                bonds = [
                    None
                    if pairs[u][side] is None or pairs[v][side] is None
                    else molecules[side].GetBondBetweenAtoms(
                        pairs[u][side].GetIdx(), pairs[v][side].GetIdx()
                    )
                    for side in (0, 1)
                ]
                if bonds == [None, None]:
                    continue
                if balances and single[u] and single[v]:
                    bonds = [bonds[0] or bonds[1]] * 2
                self.bonds.append((u, v))
                rows.append(self.join(*map(bond_row, bonds)))
        self.bond_rows = np.array(rows).reshape(-1, 28)
        full = [(a or b, b or a) if balances else (a, b) for a, b in pairs]
        self.atom_rows = np.array(
            [
                [*one_hot((a or b).GetAtomicNum(), ELEMENTS), *self.join(atom_row(a), atom_row(b))]
                for a, b in full
            ]
        )

    def join(self, left: list[float], right: list[float]) -> list[float]:
        change = [b - a for a, b in zip(left, right, strict=True)]
        columns = {"reac": left, "prod": right, "diff": change}
        return [number for name in self.mode.split("_") for number in columns[name]]


def side_by_side(dag: TypedDAG, space: str) -> NDArray[np.float32]:
    """The columns in chemprop's order: the element, those of one side, those beside them."""
    columns = dag.features(space)
    names = [name for name in columns if not name.startswith("source_")]
    second = [name for name in names if name.startswith(("other_", "change_"))]
    first = [name for name in names if name not in second]
    return np.hstack(
        [columns[name].reshape(len(columns[name]), -1).float().numpy() for name in first + second]
    )


def check_dense(texts: Sequence[str], mode: str, keeps_hydrogens: bool) -> None:
    dag = dag_of(
        texts,
        mode,
        explicit_hydrogens="written" if keeps_hydrogens else False,
        features="chemprop-v2",
        directed_bonds=True,
    )
    for graph, text in zip(split(dag), texts, strict=True):
        dense = Dense(text, mode, keeps_hydrogens)
        assert np.array_equal(side_by_side(graph, "atom"), dense.atom_rows.astype(np.float32))
        bonds = dense.bond_rows.astype(np.float32).repeat(2, axis=0)
        assert np.array_equal(side_by_side(graph, "bond"), bonds)
        arrives, first = graph.relations["arrives"], len(dense.atom_rows)
        targets = np.arange(graph.num_nodes).repeat(arrives.ptr.diff().numpy())
        ends = dict(zip((arrives.index - first).tolist(), targets.tolist(), strict=True))
        both = [end for u, v in dense.bonds for end in (v, u)]
        assert [ends[number] for number in range(len(both))] == both


@pytest.mark.parametrize("keeps_hydrogens", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_atoms_bonds_and_features_are_those_of_the_paper(mode, keeps_hydrogens):
    check_dense(REACTIONS, mode, keeps_hydrogens)


@pytest.mark.parametrize("mode", MODES)
def test_chemprop_s_test_data(mode, data_root):
    with (data_root / "chemprop_cases" / "rxn.csv").open() as file:
        check_dense([row["smiles"] for row in csv.DictReader(file)], mode, mode == "reac_diff")


# Columns of codes


def test_codes_have_one_for_absence_and_the_last_one_where_nothing_changes():
    # The first carbon and the oxygen are on both sides, bromine and sodium on one each.
    text = "[CH3:1][Br].[OH-:2]>>[CH3:1][OH:2].[Na+]"
    rows = {
        "reac_prod": {
            "element": [6, 35, 8, 11],
            "charge": [5, 5, 4, 12],
            "other_charge": [5, 12, 5, 6],
        },
        "reac_diff": {"charge": [5, 5, 4, 12], "change_charge": [13, 12, 5, 6]},
        "prod_diff": {"charge": [5, 12, 5, 6], "change_charge": [13, 5, 4, 12]},
        "reac_diff_balance": {"charge": [5, 5, 4, 6], "change_charge": [13, 13, 5, 13]},
    }
    for mode, expected in rows.items():
        atoms = dag_of([text], mode).features("atom")
        assert {name: atoms[name].tolist() for name in expected} == expected
        assert "other_element" not in atoms
        assert "change_element" not in atoms
    bonds = dag_of([text], "reac_prod").columns["relation:bond"]
    # Each bond twice, in the order of the atoms where it arrives: C-Br, C-O, ...
    assert sorted(zip(bonds["order"].tolist(), bonds["other_order"].tolist(), strict=True)) == [
        (0, 6),
        (0, 6),
        (6, 0),
        (6, 0),
    ]


@pytest.mark.parametrize("size", [254, 255, 256, 300])
def test_many_codes_have_room_for_absence_and_no_change(size, monkeypatch):
    atom = (codes("number", Chem.Atom.GetIsotope, range(size), has_other=False),)
    monkeypatch.setattr(feature_sets, "MANY", FeatureSet(atom, GRAPHFOLD.bond), raising=False)
    last = size - 1
    dag = dag_of([f"[{last}CH3:1][CH3:2]>>[{last}CH3:1].[CH3:2][{last}CH3]"], features="many")
    atoms = dag.features("atom")
    assert atoms["number"].tolist() == [last, 0, size]
    assert atoms["change_number"].tolist() == [size + 1, size + 1, last]


def test_features_of_a_whole_molecule_see_both_sides_and_their_rings(monkeypatch):
    def rings(molecule: Chem.Mol) -> list[int]:
        info = molecule.GetRingInfo()
        return [info.NumAtomRings(atom) for atom in range(molecule.GetNumAtoms())]

    atom = (codes("rings", rings, range(3), has_other=False, of="molecule"),)
    monkeypatch.setattr(feature_sets, "RINGS", FeatureSet(atom, GRAPHFOLD.bond), raising=False)
    dag = dag_of(["[CH2:1]1C[CH2:2]1>>[CH3:1]C[CH3:2]"], "reac_prod", features="rings")
    atoms = dag.features("atom")
    assert (atoms["rings"].tolist(), atoms["other_rings"].tolist()) == ([1, 1, 1, 3], [0, 3, 0, 0])


def test_the_span_of_an_atom_is_its_place_in_the_smiles():
    dag = dag_of(["[CH3:1][Br:2].CC>O>[Br-:2].[CH3:1]C"])
    assert dag.span[:, 0].tolist() == [0, 1, 2, 3, 4, 7]
    assert dag.strings("graph", "smiles") == ["[CH3:1][Br:2].CC>O>[Br-:2].[CH3:1]C"]


# Any order


def rewritten(text: str, rng: random.Random) -> str:
    """The same reaction with other map numbers, and atoms and molecules in another order."""
    numbers = rng.sample(range(1, 300), 299)
    parameters = Chem.SmilesParserParams()
    parameters.removeHs = False  # type: ignore[assignment]
    sides = []
    for side in text.split(">>"):
        molecule = Chem.MolFromSmiles(side, parameters)
        order = rng.sample(range(molecule.GetNumAtoms()), molecule.GetNumAtoms())
        molecule = Chem.RenumberAtoms(molecule, order)
        sides.append(Chem.MolToSmiles(molecule, canonical=False, allHsExplicit=True))
    return re.sub(r":(\d+)\]", lambda found: f":{numbers[int(found[1])]}]", ">>".join(sides))


def rows_of(dag: TypedDAG) -> list[Any]:
    """Each atom with its features and those of its bonds and neighbours, sorted."""
    atoms, bonds = (
        list(zip(*(column.tolist() for column in columns.values()), strict=True))
        for columns in (dag.features("atom"), dag.columns["relation:bond"])
    )
    relation = dag.relations["bond"]
    ptr, index = relation.ptr.tolist(), relation.index.tolist()
    return sorted(
        (atom, sorted((bonds[k], atoms[index[k]]) for k in range(ptr[n], ptr[n + 1])))
        for n, atom in enumerate(atoms)
    )


@pytest.mark.parametrize("seed", range(3))
def test_maps_and_orders_are_only_names(seed, data_root):
    with (data_root / "chemprop_cases" / "rxn.csv").open() as file:
        texts = [row["smiles"] for row in csv.DictReader(file)][:40]
    rng = random.Random(seed)
    others = [rewritten(text, rng) for text in texts]
    for first, second in zip(split(dag_of(texts)), split(dag_of(others)), strict=True):
        assert rows_of(first) == rows_of(second)


# Faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CCO", "'CCO' is no reaction. Write one as REACTANTS>>PRODUCTS, or set data.on_error"),
        ("", "'' is no reaction"),
        ("[CH4:1]>[CH4:1]", "is no reaction"),
        ("[CH4:1]>>[CH4:1]>>[CH4:1]", "is no reaction"),
        ("[CH4:1]>>[CH4:1] |f:0.1|", "is no reaction"),
        (">>[CH4:1]", "the SMILES is empty"),
        ("[CH4:1]>>", "the SMILES is empty"),
        ("[CH4:1]>>[CH4:1", "RDKit cannot read SMILES '[CH4:1'"),
        ("CCO>>CC=O", "no atom of the reactants has the map of an atom of the products. Map the"),
        ("[CH4:1]>>[CH4:2]", "no atom of the reactants has the map"),
        (
            "[CH3:1][CH3:1]>>[CH4:1]",
            "the reactants have several atoms with the map 1. Correct the record",
        ),
        ("[CH4:7]>>[CH3:7]O[CH3:7]", "the products have several atoms with the map 7"),
        ("[CH4:1]>>[NH3:1]", "the map 1 stands for C and N"),
    ],
)
def test_a_bad_reaction_is_refused(text, message):
    with pytest.raises(RecordError) as caught:
        dag_of([text])
    assert message in str(caught.value)


_PARTS = [
    "[CH3:1]",
    "[OH:2]",
    "[H:3]",
    "[H]",
    "C",
    "[F-:2]",
    "[CH:4]",
    "(",
    ")",
    ".",
    "=",
    "1",
    ">",
]


@given(
    st.lists(st.sampled_from([*_PARTS, ">>"]), max_size=12).map("".join),
    st.sampled_from(["reac_diff", "reac_prod_balance"]),
)
@example("[CH3:1][OH:2]>>[OH:2].[CH3:1]", "reac_diff")
def test_any_text_is_a_reaction_or_a_bad_record(text, mode):
    try:
        assert dag_of([text], mode, directed_bonds=True).num_nodes > 0
    except RecordError as error:
        assert re.search("SMILES|reaction|reactants|products|map", error.fault)  # noqa: PT017


def test_a_structure_is_no_reaction():
    with pytest.raises(RecordError, match="'C' is no reaction"):
        dag_of([Chem.MolFromSmiles("C")])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("fragments", "brics"),
        ("salts", "strip"),
        ("standardize", "cleanup"),
        ("atom_target_columns", ["q"]),
        ("bond_target_columns", ["q"]),
    ],
)
def test_options_of_single_molecules_are_refused(option, value):
    with pytest.raises(
        ConfigError, match=f"reaction=reac_diff cannot be read together with {option}"
    ):
        SmilesAdapter(reaction="reac_diff", **{option: value})


# Inputs of the whole reaction


def test_descriptors_of_both_sides_are_side_by_side():
    text, sides = "[CH3:1][CH2:2][OH:3]>>[CH3:1][CH:2]=[O:3]", ("CCO", "CC=O")
    options: dict[str, Any] = {"descriptors": ["rdkit2d", "morgan"], "fingerprint_size": 64}
    reaction = dag_of([text], **options)
    plain = SmilesAdapter(**options)
    molecules = read_records(plain, Path("x"), [plain.record_of(side) for side in sides]).dag
    for name in options["descriptors"]:
        expected = molecules.graph_column(name).flatten()
        assert np.array_equal(reaction.graph_column(name)[0], expected, equal_nan=True)
