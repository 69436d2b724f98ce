"""Facts: what graphfold's own features are made of, and how RDKit's documented calls tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from rdkit.Chem.rdchem import Atom, Bond

Facts = TypeVar("Facts", "AtomFacts", "BondFacts")


class AtomFacts(NamedTuple):
    """All that a feature of graphfold's own may know of an atom.

    Args:
        element: atomic number; 0 is a wildcard.
        charge: formal charge, in elementary charges.
        chiral_tag: number of RDKit's `ChiralType`.
        label: CIP label of a stereo centre, as far as there is one.
        hybridization: number of RDKit's `HybridizationType`.
        aromatic: whether it is.
        hydrogens: hydrogens that are not atoms of the graph.
        degree: neighbours, hydrogens included.
        radicals: unpaired electrons.
        isotope: mass number; 0 if none is given.
        in_ring: whether it is.
    """

    element: int
    charge: int
    chiral_tag: int
    label: str | None
    hybridization: int
    aromatic: bool
    hydrogens: int
    degree: int
    radicals: int
    isotope: int
    in_ring: bool


class BondFacts(NamedTuple):
    """All that a feature of graphfold's own may know of a bond.

    Args:
        order: number of RDKit's `BondType`.
        stereo: number of RDKit's `BondStereo`.
        label: CIP label of a double bond whose `stereo` is relative, as far as there is one.
        conjugated: whether it is.
        in_ring: whether it is.
    """

    order: int
    stereo: int
    label: str | None
    conjugated: bool
    in_ring: bool


def atom_facts(atoms: Sequence[Atom]) -> list[AtomFacts]:
    """The facts of each atom, stereo centres labelled before (see `label_stereo`)."""
    return [
        AtomFacts(
            atom.GetAtomicNum(),
            atom.GetFormalCharge(),
            int(atom.GetChiralTag()),
            cip_label(atom) if atom.GetChiralTag() else None,
            int(atom.GetHybridization()),
            atom.GetIsAromatic(),
            atom.GetTotalNumHs(),
            atom.GetTotalDegree(),
            atom.GetNumRadicalElectrons(),
            atom.GetIsotope(),
            atom.IsInRing(),
        )
        for atom in atoms
    ]


def bond_facts(bonds: Sequence[Bond]) -> list[BondFacts]:
    """The facts of each bond, double bonds labelled before (see `label_stereo`)."""
    return [
        BondFacts(
            int(bond.GetBondType()),
            int(bond.GetStereo()),
            cip_label(bond) if bond.GetStereo() else None,
            bond.GetIsConjugated(),
            bond.IsInRing(),
        )
        for bond in bonds
    ]


def cip_label(item: Atom | Bond) -> str | None:
    """The CIP label of an atom or a bond; None if it has none."""
    return item.GetProp("_CIPCode") if item.HasProp("_CIPCode") else None
