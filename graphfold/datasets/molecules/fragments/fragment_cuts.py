"""Cuts of a molecule into fragments: rings and paths, or the pieces of BRICS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from rdkit import Chem
from rdkit.Chem import BRICS

from graphfold.datasets.molecules.fragments.disjoint_sets import DisjointSets

#: Pairs of fragments (the lower number first) -> how much they have in common.
Links: TypeAlias = Mapping[tuple[int, int], int]

KINDS = ("ring", "path", "junction", "piece")


class Fragment(NamedTuple):
    """A fragment.

    Args:
        kind: one of `KINDS`.
        atoms: its atoms.
        bonds: the bonds within it.
    """

    kind: str
    atoms: tuple[int, ...]
    bonds: tuple[int, ...]


class Cut(NamedTuple):
    """The fragments of a molecule, which cover every atom, and which of them are neighbours."""

    fragments: Sequence[Fragment]
    links: Links


def rings_and_paths(molecule: Chem.Mol, rank: Sequence[int]) -> Cut:
    """Rings, the paths between them, and the junctions where three or more of these meet.

    The cut of Wollschläger et al. (2024), https://arxiv.org/abs/2406.08210 ("rings-paths", in its
    tree form). It has no vocabulary, so no molecule has an unknown fragment:

    - a *ring* is one of the smallest rings (RDKit's symmetrised set); fused rings are fragments of
      their own, which share atoms;
    - a *path* is a longest chain of bonds outside rings: it ends at atoms in rings, at branches
      (atoms with three or more neighbours) and at ends; an atom without bonds is a path, too;
    - a *junction* is an atom that belongs to three or more of these.

    Every bond is in a fragment. Two fragments are linked by each atom that only these two have, and
    each junction is linked with the fragments that meet there; how much they have in common is the
    number of atoms. Difference from the paper: atoms of salts and other lone atoms are fragments.

    Args:
        molecule: the sanitised molecule.
        rank: [num_atoms] the place of each atom in an order that does not depend on the numbering
            of the atoms; the fragments come in the order of their atoms' ranks.
    """
    found = _sorted([*_rings(molecule), *_paths(molecule)], rank)
    owners: list[list[int]] = [[] for _ in rank]
    for number, fragment in enumerate(found):
        for atom in fragment.atoms:
            owners[atom].append(number)
    common = Counter(pair for own in owners for pair in combinations(own, 2))
    links: dict[tuple[int, int], int] = {}
    for atom in sorted(range(len(rank)), key=rank.__getitem__):
        if len(owners[atom]) == 2:
            pair = owners[atom][0], owners[atom][1]
            links[pair] = common[pair]
        elif len(owners[atom]) > 2:
            links |= {(number, len(found)): 1 for number in owners[atom]}
            found.append(Fragment("junction", (atom,), ()))
    return Cut(found, links)


def brics(molecule: Chem.Mol, rank: Sequence[int]) -> Cut:
    """The pieces between the bonds that the retrosynthetic rules of BRICS break.

    Degen et al. (2008), https://doi.org/10.1002/cmdc.200800178, as RDKit has them. No atom is in
    two pieces; two pieces are linked by a broken bond, of which every one is a link of the tree.

    Args:
        molecule: the sanitised molecule.
        rank: as in `rings_and_paths`.
    """
    found_bonds = BRICS.FindBRICSBonds(molecule)  # type: ignore[no-untyped-call]
    broken = {frozenset(ends) for ends, _ in found_bonds}
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
    kept = [index for index, ends in enumerate(bonds) if frozenset(ends) not in broken]
    group = DisjointSets(len(rank))
    for index in kept:
        group.join(*bonds[index])
    atoms, within = group.groups(range(len(rank))), group.groups(kept, lambda b: bonds[b][0])
    pieces = [Fragment("piece", own, within.get(key, ())) for key, own in atoms.items()]
    found = _sorted(pieces, rank)
    owner = {atom: number for number, piece in enumerate(found) for atom in piece.atoms}
    pairs = (sorted(owner[atom] for atom in ends) for ends in broken)
    return Cut(found, Counter((first, second) for first, second in pairs))


#: The option `fragments` -> what cuts a molecule.
CUTS: Mapping[str, Callable[[Chem.Mol, Sequence[int]], Cut]] = {
    "rings_and_paths": rings_and_paths,
    "brics": brics,
}


def _sorted(fragments: Iterable[Fragment], rank: Sequence[int]) -> list[Fragment]:
    """The fragments with their atoms by rank, in the order of these ranks."""
    place = rank.__getitem__
    found = [Fragment(f.kind, tuple(sorted(f.atoms, key=place)), f.bonds) for f in fragments]
    return sorted(found, key=lambda f: [rank[atom] for atom in f.atoms])


def _rings(molecule: Chem.Mol) -> list[Fragment]:
    info = molecule.GetRingInfo()
    pairs = zip(info.AtomRings(), info.BondRings(), strict=True)
    return [Fragment("ring", tuple(atoms), tuple(bonds)) for atoms, bonds in pairs]


def _paths(molecule: Chem.Mol) -> list[Fragment]:
    """Bonds outside rings, joined at atoms that have just two of them and are in no ring."""
    outside: dict[int, tuple[int, int]] = {}
    at: list[list[int]] = [[] for _ in range(molecule.GetNumAtoms())]
    in_ring: set[int] = set()
    for index, bond in enumerate(molecule.GetBonds()):
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if bond.IsInRing():
            in_ring.update(ends)
            continue
        outside[index] = ends
        for atom in ends:
            at[atom].append(index)
    group = DisjointSets(molecule.GetNumBonds())
    for atom, own in enumerate(at):
        if len(own) == 2 and atom not in in_ring:
            group.join(*own)
    chains = group.groups(outside).values()
    paths = [(tuple({atom for bond in own for atom in outside[bond]}), own) for own in chains]
    paths += [((atom,), ()) for atom, own in enumerate(at) if not own and atom not in in_ring]
    return [Fragment("path", *path) for path in paths]
