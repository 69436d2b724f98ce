"""MoleculeChunk: many molecules, cut into numbers, on their way to one `TypedDAG`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

from rdkit import Chem

from graphfold.dag import Schema, TypedDAG
from graphfold.datasets.molecules.directed_bonds import refuse_crowded
from graphfold.datasets.molecules.features.facts import (
    AtomFacts,
    BondFacts,
    atom_facts,
    bond_facts,
    cip_label,
)
from graphfold.datasets.molecules.features.feature_set import FeatureSet
from graphfold.datasets.molecules.molecule import atoms_of, bonds_of, label_stereo
from graphfold.datasets.molecules.molecule_arrays import MoleculeArrays, build_graphs
from graphfold.datasets.molecules.rdkit_binary import (
    CENTRE,
    STEREO,
    CutMolecule,
    cut_molecule,
    decode_atom,
    decode_bond,
)

Facts = TypeVar("Facts", AtomFacts, BondFacts)


class MoleculeChunk:
    """Collects molecules, and builds the graphs that `MoleculeGraphs.add` would, bit for bit.

    An atom is a number here: that of its facts among the different ones of the chunk, less what its
    neighbours and rings add. So each distinct row of features is made once, and all else is done
    for all molecules together.

    Args:
        schema: of the graphs.
        features: of their atoms and bonds.
        directed_bonds: whether bonds are nodes.
    """

    def __init__(self, schema: Schema, features: FeatureSet, directed_bonds: bool) -> None:
        self.schema = schema
        self.features = features
        self.directed_bonds = directed_bonds
        self._atoms = _Numbers(decode_atom)
        self._bonds = _Numbers(decode_bond)
        self._arrays = MoleculeArrays()
        self._columns: dict[str, list[Any]] = {c.name: [] for c in schema.spaces()["graph"]}

    def add(self, line: int, molecule: Chem.Mol, columns: Mapping[str, Any]) -> None:
        """Adds a molecule.

        Args:
            line: where its record begins.
            molecule: the sanitised molecule; CIP labels may be added to it.
            columns: features and targets of its graph; what is not given is missing.

        Raises:
            RecordError: if bonds shall be nodes and an atom has too many of them.
        """
        if self.directed_bonds:
            refuse_crowded(molecule)
        cut = cut_molecule(molecule)
        if cut is None:
            self._add_by_calls(molecule)
        else:
            self._add_cut(molecule, cut)
        self._arrays.lines.append(line)
        for name, values in self._columns.items():
            values.append(columns.get(name))

    def build(self, file: str) -> TypedDAG:
        """The graphs of all molecules, in order.

        Raises:
            SchemaError: if a value of a graph does not fit its column.
        """
        return build_graphs(
            self.schema,
            self.features,
            self._arrays,
            self._atoms.facts,
            self._bonds.facts,
            self._columns,
            file,
        )

    def _add_cut(self, molecule: Chem.Mol, cut: CutMolecule) -> None:
        atoms = [self._atoms[atom] for atom in cut.atoms]
        bonds = [self._bonds[bond] for bond in cut.bonds]
        if self.features.labels:
            self._label(molecule, cut, atoms, bonds)
        self._arrays.add(atoms, cut.ends, bonds, cut.rings)

    def _label(
        self, molecule: Chem.Mol, cut: CutMolecule, atoms: list[int], bonds: list[int]
    ) -> None:
        """Replaces the numbers of stereo centres and double bonds by those with their labels."""
        centres = [number for number, atom in enumerate(cut.atoms) if atom[2] & CENTRE]
        doubles = [number for number, bond in enumerate(cut.bonds) if bond[0] & STEREO]
        if not centres and not doubles:
            return
        own_atoms = list(map(molecule.GetAtomWithIdx, centres))
        own_bonds = list(map(molecule.GetBondWithIdx, doubles))
        labels = [*map(cip_label, own_atoms)], [*map(cip_label, own_bonds)]
        if None in labels[0] or None in labels[1]:
            label_stereo(molecule, own_atoms, own_bonds)
            labels = [*map(cip_label, own_atoms)], [*map(cip_label, own_bonds)]
        for number, label in zip(centres, labels[0], strict=True):
            atoms[number] = self._atoms[cut.atoms[number], label]
        for number, label in zip(doubles, labels[1], strict=True):
            bonds[number] = self._bonds[cut.bonds[number], label]

    def _add_by_calls(self, molecule: Chem.Mol) -> None:
        """The same, atom by atom, for what is unknown in RDKit's binary form."""
        atoms = atoms_of(molecule)
        bonds = bonds_of(molecule, atoms)
        if self.features.labels:
            label_stereo(molecule, atoms, bonds)
        self._arrays.add(
            [
                self._atoms.of(facts._replace(degree=facts.hydrogens, in_ring=False))
                for facts in atom_facts(atoms)
            ],
            chain.from_iterable((b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in bonds),
            [self._bonds.of(facts._replace(in_ring=False)) for facts in bond_facts(bonds)],
            molecule.GetRingInfo().AtomRings(),
        )


#: The bytes of an atom or a bond; those of a labelled one with its CIP label.
Key: TypeAlias = bytes | tuple[bytes, str | None]


class _Numbers(dict[Key, int], Generic[Facts]):
    """Bytes, and a label if there is one -> the number of the facts they stand for, from 0 on.

    Args:
        decode: makes facts out of bytes and a CIP label.

    Attributes:
        facts: the different facts by number.
    """

    def __init__(self, decode: Callable[[bytes, str | None], Facts]) -> None:
        super().__init__()
        self.facts: list[Facts] = []
        self._decode: Callable[[bytes, str | None], Facts] = decode
        self._number: dict[Facts, int] = {}

    def __missing__(self, key: Key) -> int:
        data, label = (key, None) if isinstance(key, bytes) else key
        self[key] = self.of(self._decode(data, label))
        return self[key]

    def of(self, facts: Facts) -> int:
        """The number of some facts."""
        number = self._number.setdefault(facts, len(self.facts))
        if number == len(self.facts):
            self.facts.append(facts)
        return number
