"""Reactions: the molecules of both sides as one graph, the condensed graph of reaction (CGR).

Heid and Green (2022), https://doi.org/10.1021/acs.jcim.1c00975, as chemprop 2.3.1 has it: atoms of
equal map number are one atom, the bonds are those of either side, and each feature has two columns.
`read_reaction` pairs the atoms and bonds of the two sides, a `ReactionMode` makes the columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.rdchem import Atom

from graphfold.dag import Column
from graphfold.dag.depth import IntArray
from graphfold.datasets.molecules.atom_features import Feature
from graphfold.datasets.molecules.molecule import (
    Hydrogens,
    atoms_of,
    bonds_of,
    has_stereo,
    read_in_silence,
    sides_of,
)
from graphfold.errors import RecordError, shortened

ModeName: TypeAlias = Literal[
    "reac_prod",
    "reac_prod_balance",
    "reac_diff",
    "reac_diff_balance",
    "prod_diff",
    "prod_diff_balance",
]


@dataclass(frozen=True)
class ReactionMode:
    """The two columns that each feature of a reaction has.

    The first column, with the name of the feature, is that of one side. The second one is that of
    the other side (`other_...`), or the change from reactants to products (`change_...`): numbers
    are subtracted, as are the numbers of a one-hot row; for a code, it is the code on the other
    side where the sides differ, and the last code elsewhere. The feature that reads the atomic
    number, which is the same on both sides, has one column.

    On a side that lacks an atom or a bond, a code is one more than the others, and numbers are 0;
    only the atomic number is known. Of a balanced reaction, atoms that one side lacks are the same
    on both, and so are the bonds between two of them.

    Args:
        first: the side of the first column, 0 for the reactants, 1 for the products.
        has_change: whether the second column is the change.
        is_balanced: whether the reaction is balanced.
    """

    first: Literal[0, 1]
    has_change: bool
    is_balanced: bool = False

    def columns(self, feature: Feature, column: Column) -> tuple[Column, ...]:
        """The columns of a feature of reactions, from its column for molecules."""
        if _is_element(feature):
            return (column,)
        name = f"{'change' if self.has_change else 'other'}_{column.name}"
        if column.size is not None:
            change = _sized(column, column.size + 1 + self.has_change)
            return _sized(column, column.size + 1), replace(change, name=name)
        dtype = "float32" if self.has_change else column.dtype
        return column, replace(column, name=name, dtype=dtype)

    def numbers(
        self, feature: Feature, numbers: NDArray[Any], pairs: IntArray
    ) -> tuple[NDArray[Any], ...]:
        """The numbers of a feature on the first side and on the other one; of the element, once.

        Args:
            feature: the feature.
            numbers: its numbers for the atoms, or bonds, of all molecules of both sides.
            pairs: [num_items, 2] the atom on either side; -1 where there is none.

        Returns:
            [num_items] each.
        """
        if _is_element(feature):
            return (numbers[pairs.max(axis=1)],)
        sides = np.where(pairs < 0, np.int64(feature.absent), numbers[pairs])
        return sides[:, self.first], sides[:, 1 - self.first]

    def rows(self, feature: Feature, numbers: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """[num_items, *shape] each: the rows of the columns, from `numbers`."""
        columns = self.columns(feature, feature.column)
        values = [n if feature.table is None else feature.table[n] for n in numbers]
        if self.has_change and len(values) == 2:
            first, other = values
            if feature.column.size is not None:
                values[1] = np.where(first == other, feature.column.size + 1, other)
            else:
                reactants, products = values[self.first], values[1 - self.first]
                values[1] = np.subtract(products, reactants, dtype=np.float64)
        return [v.astype(c.dtype) for v, c in zip(values, columns, strict=True)]


def _is_element(feature: Feature) -> bool:
    return bool(feature.read == Atom.GetAtomicNum)


def _sized(column: Column, size: int) -> Column:
    return replace(column, size=size, dtype=column.dtype if size <= 256 else "int32")


#: The modes by chemprop's names.
MODES: Mapping[str, ReactionMode] = {
    "reac_prod": ReactionMode(0, has_change=False),
    "reac_prod_balance": ReactionMode(0, has_change=False, is_balanced=True),
    "reac_diff": ReactionMode(0, has_change=True),
    "reac_diff_balance": ReactionMode(0, has_change=True, is_balanced=True),
    "prod_diff": ReactionMode(1, has_change=True),
    "prod_diff_balance": ReactionMode(1, has_change=True, is_balanced=True),
}


class Reaction(NamedTuple):
    """A reaction, and the atoms and bonds of its condensed graph.

    Its atoms are those of the reactants and agents, then those that only the products have.

    Args:
        sides: the reactants with the agents, and the products.
        molecule: both sides as one molecule without atom maps, in this order.
        atoms: [num_atoms, 2] the atom of `molecule` on either side; -1 on a side that lacks it.
        bonds: [num_bonds, 2] its bond on either side; likewise.
        ends: [num_bonds, 2] the atoms that a bond joins.
    """

    sides: tuple[Chem.Mol, Chem.Mol]
    molecule: Chem.Mol
    atoms: IntArray
    bonds: IntArray
    ends: IntArray

    @property
    def places(self) -> list[int]:
        """[num_atoms] the place of each atom in the SMILES, the reactants' where it has two."""
        reactants, products = self.atoms.T
        places: list[int] = np.where(reactants < 0, products, reactants).tolist()
        return places


def read_reaction(
    smiles: str, explicit_hydrogens: Hydrogens, is_balanced: bool = False, has_labels: bool = True
) -> Reaction:
    """The reaction of a SMILES `reactants>agents>products` with atom maps; within `silence`.

    Agents are reactants. RDKit lets atom maps decide which configuration a double bond is said to
    have, as it does for chemprop; with `has_labels`, stereo is assigned again without them.

    Args:
        smiles: the SMILES.
        explicit_hydrogens: see `read_molecule`.
        is_balanced: see `ReactionMode`.
        has_labels: whether the features are read with CIP labels, see `FeatureSet`.

    Raises:
        RecordError: if it is no reaction, RDKit cannot read a side, no atom map is on both sides,
            or an atom map stands for two atoms of a side, or for two elements.
    """
    texts = sides_of(smiles)
    if len(texts) < 2 or len(smiles.split()) > 1:
        fault = f"'{shortened(smiles)}' is no reaction"
        raise RecordError(fault, "Write one as REACTANTS>>PRODUCTS, or set data.on_error=skip.")
    reactants, products = (read_in_silence(text, explicit_hydrogens, True) for text in texts)
    molecule = Chem.CombineMols(reactants, products)
    atoms, count = atoms_of(molecule), reactants.GetNumAtoms()
    partner = _partners(atoms, count)
    for atom in atoms:
        atom.SetAtomMapNum(0)
    Chem.GetSymmSSSR(molecule)  # the molecule of both sides has no RingInfo yet
    if has_labels and has_stereo(smiles):
        Chem.AssignStereochemistry(molecule, True, True)
    return Reaction((reactants, products), molecule, *_condense(molecule, partner, is_balanced))


def _partners(atoms: Sequence[Atom], count: int) -> list[int]:
    """[number of reactants' atoms] the atom of the products with the same map; -1 without one.

    Raises:
        RecordError: see `read_reaction`.
    """
    maps = [atom.GetAtomMapNum() for atom in atoms]
    for name, numbers in (("reactants", maps[:count]), ("products", maps[count:])):
        repeated = [number for number, times in Counter(numbers).items() if number and times > 1]
        if repeated:
            raise RecordError(f"the {name} have several atoms with the map {repeated[0]}")
    products = {number: count + atom for atom, number in enumerate(maps[count:]) if number}
    partner = [products.get(number, -1) for number in maps[:count]]
    if max(partner, default=-1) < 0:
        fault = "no atom of the reactants has the map of an atom of the products"
        raise RecordError(fault, "Map the atoms ([CH3:1]), or set data.on_error=skip.")
    for atom, other in zip(atoms, partner, strict=False):
        if other >= 0 and atom.GetAtomicNum() != atoms[other].GetAtomicNum():
            elements = f"{atom.GetSymbol()} and {atoms[other].GetSymbol()}"
            raise RecordError(f"the map {atom.GetAtomMapNum()} stands for {elements}")
    return partner


def _condense(
    molecule: Chem.Mol, partner: Sequence[int], is_balanced: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """`atoms`, `bonds` and `ends` of a `Reaction`, the bonds sorted by their ends."""
    count = len(partner)
    added = {*range(count, molecule.GetNumAtoms())} - {*partner}
    atoms = np.array([*enumerate(partner), *((-1, atom) for atom in sorted(added))])
    number = {atom: place for place, pair in enumerate(atoms.tolist()) for atom in pair}
    pairs: dict[tuple[int, int], list[int]] = {}
    for index, bond in enumerate(bonds_of(molecule, atoms_of(molecule))):
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        first, last = sorted((number[begin], number[end]))
        pairs.setdefault((first, last), [-1, -1])[begin >= count] = index
    ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    bonds = np.array([pairs[key] for key in sorted(pairs)], dtype=np.int64).reshape(-1, 2)
    if is_balanced:
        is_single = atoms.min(axis=1) < 0
        for rows, is_equal in ((atoms, is_single), (bonds, is_single[ends].all(axis=1))):
            rows[is_equal] = rows[is_equal].max(axis=1, keepdims=True)
    return atoms, bonds, ends
