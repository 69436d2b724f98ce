"""The facts of many molecules: those of equal atoms, or bonds, are put together once.

An atom is a number here, that of its facts among the different ones; what its neighbours and rings
add to them is found for all molecules together. Where `rdkit_binary` knows a molecule, its facts
come out of RDKit's binary form by one call. RDKit's documented calls, ten for each atom and six for
each bond, tell the same (a test compares them) and are for all else; a whole reading takes a
quarter longer with them, however they are arranged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from graphfold.dag.depth import IntArray, run_pointers
from graphfold.datasets.molecules.facts import (
    AtomFacts,
    BondFacts,
    Facts,
    atom_facts,
    bond_facts,
    cip_label,
)
from graphfold.datasets.molecules.molecule import atoms_of, bonds_of, label_stereo
from graphfold.datasets.molecules.rdkit_binary import (
    CENTRE,
    STEREO,
    CutMolecule,
    cut_molecule,
    decode_atom,
    decode_bond,
)

#: Entries of a table that is made instead of sorting numbers.
_LARGEST_TABLE = 1 << 22


class MoleculeFacts(NamedTuple):
    """One molecule in numbers.

    Args:
        atoms: the number of the facts of each atom, as if it had no neighbours and no ring.
        bonds: the number of the facts of each bond, as if it were in no ring.
        ends: [2 * num_bonds] the first and the last atom of each bond.
        rings: the atoms of each ring, in the order of the ring.
    """

    atoms: list[int]
    bonds: list[int]
    ends: Sequence[int]
    rings: Sequence[Sequence[int]]


class FactRows(NamedTuple, Generic[Facts]):
    """The facts of atoms, or of bonds, one after another.

    Args:
        different: the different facts.
        kind: [num_rows] which of these each row has.
    """

    different: list[Facts]
    kind: IntArray


class FactTable:
    """Collects the facts of molecules.

    Args:
        labels: whether CIP labels are among them, which take time to find.

    Attributes:
        num_atoms, num_bonds: [num_molecules] how many each molecule has.
    """

    def __init__(self, labels: bool) -> None:
        self.labels = labels
        self.num_atoms: list[int] = []
        self.num_bonds: list[int] = []
        self._atom_facts = _Numbers(decode_atom)
        self._bond_facts = _Numbers(decode_bond)
        self._atoms: list[int] = []
        self._bonds: list[int] = []
        self._ends: list[int] = []
        self._rings: list[int] = []
        self._ring_sizes: list[int] = []
        self._num_rings: list[int] = []

    def read(self, molecule: Chem.Mol) -> MoleculeFacts:
        """The facts of a molecule, which gets CIP labels if these are among them."""
        cut = cut_molecule(molecule)
        if cut is None:
            return self._read_by_calls(molecule)
        atoms = [self._atom_facts[atom] for atom in cut.atoms]
        bonds = [self._bond_facts[bond] for bond in cut.bonds]
        if self.labels:
            self._label(molecule, cut, atoms, bonds)
        return MoleculeFacts(atoms, bonds, cut.ends, cut.rings)

    def add(self, facts: MoleculeFacts) -> None:
        """Adds a molecule."""
        self._atoms += facts.atoms
        self._bonds += facts.bonds
        self._ends += facts.ends
        self._rings += chain.from_iterable(facts.rings)
        self._ring_sizes += map(len, facts.rings)
        self.num_atoms.append(len(facts.atoms))
        self.num_bonds.append(len(facts.bonds))
        self._num_rings.append(len(facts.rings))

    def rows(self) -> tuple[IntArray, FactRows[AtomFacts], FactRows[BondFacts]]:
        """[num_bonds, 2] the atoms of each bond among all atoms; the facts of atoms, of bonds."""
        first_atom = run_pointers(_array(self.num_atoms))
        ends = _array(self._ends).reshape(-1, 2)
        ends += first_atom[:-1].repeat(_array(self.num_bonds))[:, None]
        ring_atom, ring_bond = self._in_rings(first_atom, ends)
        neighbours = np.bincount(ends.ravel(), minlength=len(ring_atom))

        def of_atom(number: int, degree: int, ring: int) -> AtomFacts:
            facts = self._atom_facts.facts[number]
            return facts._replace(degree=facts.degree + degree, in_ring=bool(ring))

        def of_bond(number: int, ring: int) -> BondFacts:
            return self._bond_facts.facts[number]._replace(in_ring=bool(ring))

        atoms = _different((_array(self._atoms), neighbours, ring_atom), of_atom)
        return ends, atoms, _different((_array(self._bonds), ring_bond), of_bond)

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
            atoms[number] = self._atom_facts[cut.atoms[number], label]
        for number, label in zip(doubles, labels[1], strict=True):
            bonds[number] = self._bond_facts[cut.bonds[number], label]

    def _read_by_calls(self, molecule: Chem.Mol) -> MoleculeFacts:
        """The same, atom by atom, for what is unknown in RDKit's binary form."""
        atoms = atoms_of(molecule)
        bonds = bonds_of(molecule, atoms)
        if self.labels:
            label_stereo(molecule, atoms, bonds)
        return MoleculeFacts(
            [
                self._atom_facts.of(facts._replace(degree=facts.hydrogens, in_ring=False))
                for facts in atom_facts(atoms)
            ],
            [self._bond_facts.of(facts._replace(in_ring=False)) for facts in bond_facts(bonds)],
            [end for bond in bonds for end in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())],
            molecule.GetRingInfo().AtomRings(),
        )

    def _in_rings(self, first_atom: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
        """1 for each atom that is in a ring, else 0; and the same for the bonds."""
        sizes, num_rings = _array(self._ring_sizes), _array(self._num_rings)
        first = run_pointers(sizes)
        atoms = _array(self._rings) + first_atom[:-1].repeat(num_rings).repeat(sizes)
        following = np.arange(1, len(atoms) + 1)
        following[first[1:] - 1] = first[:-1]  # the last atom of a ring is bound to the first
        in_ring = np.zeros(int(first_atom[-1]), dtype=np.int64)
        in_ring[atoms] = 1
        sides = np.stack([atoms, atoms[following]], axis=1)
        pairs = _pairs(np.concatenate([ends, sides]))
        # Ends of a bond are near each other, so a table of all pairs that there may be is small.
        is_small = int(pairs.max(initial=0)) < _LARGEST_TABLE
        bonds, sides = np.split(pairs, [len(ends)])
        found = np.isin(bonds, sides, kind="table" if is_small else "sort")
        return in_ring, found.astype(np.int64)


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


def distinct(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """As numpy's `unique` with `return_inverse`, without sorting where the numbers are small."""
    size = int(numbers.max(initial=-1)) + 1
    if size >= _LARGEST_TABLE:
        return np.unique(numbers, return_inverse=True)
    is_there = np.zeros(size, dtype=bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


def _different(columns: Sequence[NDArray[Any]], facts: Callable[..., Facts]) -> FactRows[Facts]:
    """The facts of all different rows of the columns, which `facts` makes of their values."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    rows, kind = distinct(np.ravel_multi_index(tuple(columns), sizes))
    values = [column.tolist() for column in np.unravel_index(rows, sizes)]
    return FactRows([facts(*row) for row in zip(*values, strict=True)], kind)


def _pairs(ends: IntArray) -> IntArray:
    """A number for each pair of atoms, whichever comes first."""
    first, apart = np.minimum(*ends.T), np.abs(ends[:, 0] - ends[:, 1])
    numbers: IntArray = first * (int(apart.max(initial=0)) + 1) + apart
    return numbers


def _array(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
