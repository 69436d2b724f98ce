"""Fragments: a molecule is cut, and the pieces become a tree of nodes above its atoms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeAlias

from rdkit import Chem
from rdkit.Chem import BRICS

from graphfold.dag import Column, EdgeType, NodeType

KINDS = ("ring", "path", "junction", "piece")

#: Counts from here on share one code.
MOST = 31

#: A fragment; its inputs are its atoms and then its children in the tree.
#:
#: - `kind`: ring, path, junction, piece; see `CUTS`.
#: - `size`: atoms. `length`: the same as a number, in tens of atoms.
#: - `aromatic`: 1 if there are bonds and all of them are aromatic.
#: - `hetero`: atoms that are neither carbon nor hydrogen.
#: - `leaving`: bonds from its atoms to atoms outside.
#: - `links`: fragments that it is linked with.
#: - `shared`: atoms that are in other fragments, too, junctions aside.
#: - `overlap`: the most atoms that it has in common with one other fragment: of rings, 1 if they
#:   are spiro, 2 if fused, more if bridged.
FRAGMENT = NodeType(
    "fragment",
    None,
    (
        Column("kind", "uint8", size=len(KINDS)),
        *(
            Column(name, "uint8", size=MOST + 1)
            for name in ("size", "hetero", "leaving", "links", "shared", "overlap")
        ),
        Column("aromatic", "uint8", size=2),
        Column("length", "float32", unit="10 atoms"),
    ),
    inputs=("atom", "fragment"),
)

#: The molecule; its inputs are the roots of its trees, one for each part of a salt.
MOLECULE = NodeType("molecule", None, inputs=("fragment",))

#: The inputs of a fragment: `is_atom` is true for its atoms, false for its children in the tree.
FRAGMENT_INPUTS = EdgeType("inputs", (Column("is_atom", "bool"),))


class UpperNodes(NamedTuple):
    """The nodes of one graph that have inputs; they stand after all others.

    Args:
        op_type: their types.
        span: the places in the SMILES that each covers.
        num_inputs: the number of inputs of each.
        inputs: their inputs, one after another, by their numbers in the graph.
        outputs: the outputs of the graph, some of these nodes.
        columns: space -> column -> the values of one row of the space after another.
    """

    op_type: Sequence[int]
    span: Sequence[tuple[int, int]]
    num_inputs: Sequence[int]
    inputs: Sequence[int]
    outputs: Sequence[int]
    columns: Mapping[str, Mapping[str, Sequence[Any]]]


def fragment_nodes(
    molecule: Chem.Mol, option: str, first_type: int, num_below: int, places: Sequence[int]
) -> UpperNodes:
    """The fragments of a molecule, and after them the molecule, the only output.

    The span of a fragment goes from the first of its atoms in the SMILES to the last one. Only the
    numbers of nodes depend on the numbers of the atoms: everything else is ordered by RDKit's
    canonical ranks.

    Args:
        molecule: the molecule.
        option: a key of `CUTS`.
        first_type: the number of the type of fragments; that of the molecule follows.
        num_below: the number of nodes before these, atoms first.
        places: [num_atoms] the place of each atom in the SMILES.
    """
    rank = list(Chem.CanonicalRankAtoms(molecule))
    cut = CUTS[option](molecule, rank)
    roots, children = fragment_trees(cut)
    fragments, count = cut.fragments, len(cut.fragments)
    atoms = [[*fragment.atoms] for fragment in fragments] + [[]]
    spans = [[places[atom] for atom in fragment.atoms] for fragment in fragments]
    nodes = [[num_below + child for child in below] for below in [*children, roots]]
    inputs = [a + n for a, n in zip(atoms, nodes, strict=True)]
    is_atom = [[True] * len(a) + [False] * len(n) for a, n in zip(atoms, nodes, strict=True)]
    return UpperNodes(
        [first_type] * count + [first_type + 1],
        [(min(span), max(span) + 1) for span in spans] + [(0, len(rank))],
        [*map(len, inputs)],
        [*chain.from_iterable(inputs)],
        [num_below + count],
        {
            "type:fragment": _features(molecule, cut),
            "inputs": {"is_atom": [*chain.from_iterable(is_atom)]},
        },
    )


#: Pairs of fragments (the lower number first) -> how much they have in common.
Links: TypeAlias = Mapping[tuple[int, int], int]


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
    """The fragments of a molecule, which cover every atom, and the links between them."""

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
    info = molecule.GetRingInfo()
    pairs = zip(info.AtomRings(), info.BondRings(), strict=True)
    rings = [Fragment("ring", *ring) for ring in pairs]
    fragments = _sorted([*rings, *_paths(molecule)], rank)
    owners: list[list[int]] = [[] for _ in rank]
    for number, fragment in enumerate(fragments):
        for atom in fragment.atoms:
            owners[atom].append(number)
    common = Counter(pair for numbers in owners for pair in combinations(numbers, 2))
    links: dict[tuple[int, int], int] = {}
    for atom in sorted(range(len(rank)), key=rank.__getitem__):
        if len(owners[atom]) == 2:
            pair = owners[atom][0], owners[atom][1]
            links[pair] = common[pair]
        elif len(owners[atom]) > 2:
            links |= {(number, len(fragments)): 1 for number in owners[atom]}
            fragments.append(Fragment("junction", (atom,), ()))
    return Cut(fragments, links)


def brics(molecule: Chem.Mol, rank: Sequence[int]) -> Cut:
    """The pieces between the bonds that the retrosynthetic rules of BRICS break.

    Degen et al. (2008), https://doi.org/10.1002/cmdc.200800178, as RDKit implements them. No atom
    is in two pieces; two pieces are linked by a broken bond, and each broken bond is a link of the
    tree.

    Args:
        molecule: the sanitised molecule.
        rank: as in `rings_and_paths`.
    """
    broken_bonds = BRICS.FindBRICSBonds(molecule)  # type: ignore[no-untyped-call]
    broken = {frozenset(ends) for ends, _ in broken_bonds}
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
    inner = [index for index, ends in enumerate(bonds) if frozenset(ends) not in broken]
    group = DisjointSets(len(rank))
    for index in inner:
        group.join(*bonds[index])
    atoms, within = group.groups(range(len(rank))), group.groups(inner, lambda b: bonds[b][0])
    pieces = [Fragment("piece", piece, within.get(key, ())) for key, piece in atoms.items()]
    fragments = _sorted(pieces, rank)
    owner = {atom: number for number, piece in enumerate(fragments) for atom in piece.atoms}
    pairs = (sorted(owner[atom] for atom in ends) for ends in broken)
    return Cut(fragments, Counter((first, second) for first, second in pairs))


#: The option `fragments` -> the function that cuts a molecule.
CUTS: Mapping[str, Callable[[Chem.Mol, Sequence[int]], Cut]] = {
    "rings_and_paths": rings_and_paths,
    "brics": brics,
}


def _sorted(fragments: Iterable[Fragment], rank: Sequence[int]) -> list[Fragment]:
    """The fragments with their atoms by rank, in the order of these ranks."""
    place = rank.__getitem__
    ordered = [Fragment(f.kind, tuple(sorted(f.atoms, key=place)), f.bonds) for f in fragments]
    return sorted(ordered, key=lambda f: [rank[atom] for atom in f.atoms])


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
    for atom, bonds in enumerate(at):
        if len(bonds) == 2 and atom not in in_ring:
            group.join(*bonds)
    chains = group.groups(outside).values()
    paths = [(tuple({atom for bond in bonds for atom in outside[bond]}), bonds) for bonds in chains]
    paths += [((atom,), ()) for atom, bonds in enumerate(at) if not bonds and atom not in in_ring]
    return [Fragment("path", *path) for path in paths]


def fragment_trees(cut: Cut) -> tuple[list[int], list[list[int]]]:
    """The roots, one for each connected part of a molecule, and the children of every fragment.

    Where links form a cycle, as between fused rings that a junction joins as well, the tree is a
    maximum spanning tree (Kruskal): links between fragments that have more in common come first,
    then those between fragments of lower numbers. The root is the centre of its tree, of two
    centres the lower number; so trees are as flat as possible.

    Returns:
        roots: the numbers of the roots, ascending.
        children: [num_fragments] the numbers of each fragment's children, ascending.
    """
    near = _spanning(cut)
    roots = _centres(near)
    children: list[list[int]] = [[] for _ in near]
    stack = [(root, -1) for root in roots]
    while stack:
        number, parent = stack.pop()
        children[number] = [other for other in near[number] if other != parent]
        stack += [(child, number) for child in children[number]]
    return roots, children


def _spanning(cut: Cut) -> list[list[int]]:
    """The neighbours of each fragment in the spanning trees, ascending."""
    trees = DisjointSets(len(cut.fragments))
    near: list[list[int]] = [[] for _ in cut.fragments]
    for first, second in sorted(cut.links, key=lambda pair: (-cut.links[pair], pair)):
        if trees.join(first, second):
            near[first].append(second)
            near[second].append(first)
    return [sorted(neighbours) for neighbours in near]


def _centres(near: Sequence[Sequence[int]]) -> list[int]:
    """The centre of each tree, found by removing its leaves, layer by layer."""
    degree = [*map(len, near)]
    centres = [number for number, count in enumerate(degree) if count == 0]
    layer = [number for number, count in enumerate(degree) if count == 1]
    while layer:
        leaves, inner = {*layer}, []
        for number in layer:
            (other,) = (n for n in near[number] if degree[n])
            if other not in leaves:
                degree[number] = 0
                degree[other] -= 1
                inner.append(other)
            elif number < other:  # the last two of a tree
                centres.append(number)
        centres += {n for n in inner if degree[n] == 0}
        layer = [n for n in dict.fromkeys(inner) if degree[n] == 1]
    return sorted(centres)


def _features(molecule: Chem.Mol, cut: Cut) -> dict[str, list[Any]]:
    """The columns of `FRAGMENT`."""
    fragments = cut.fragments
    atoms = [molecule.GetAtomWithIdx(index) for index in range(molecule.GetNumAtoms())]
    degree = [atom.GetDegree() for atom in atoms]
    hetero = [atom.GetAtomicNum() not in (1, 6) for atom in atoms]
    aromatic = [bond.GetIsAromatic() for bond in molecule.GetBonds()]
    links, overlap = [0] * len(fragments), [0] * len(fragments)
    for pair, common in cut.links.items():
        for number in pair:
            links[number] += 1
            overlap[number] = max(overlap[number], common)
    owners = _owners(fragments, len(atoms))
    counts = {
        "size": [len(f.atoms) for f in fragments],
        "hetero": [sum(hetero[atom] for atom in f.atoms) for f in fragments],
        "leaving": [sum(degree[a] for a in f.atoms) - 2 * len(f.bonds) for f in fragments],
        "links": links,
        "shared": [sum(owners[atom] > 1 for atom in f.atoms) for f in fragments],
        "overlap": overlap,
    }
    return {
        "kind": [KINDS.index(f.kind) for f in fragments],
        **{name: [min(count, MOST) for count in column] for name, column in counts.items()},
        "aromatic": [bool(f.bonds) and all(aromatic[b] for b in f.bonds) for f in fragments],
        "length": [len(f.atoms) / 10 for f in fragments],
    }


def _owners(fragments: Sequence[Fragment], num_atoms: int) -> list[int]:
    """[num_atoms] how many fragments, junctions aside, an atom is in."""
    owners = [0] * num_atoms
    for fragment in fragments:
        if fragment.kind != "junction":
            for atom in fragment.atoms:
                owners[atom] += 1
    return owners


class DisjointSets:
    """Numbers in groups that are joined one by one (union-find with path halving).

    Args:
        count: how many numbers; each begins as one group.
    """

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def find(self, number: int) -> int:
        """The representative of the group of `number`."""
        above = self._above
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    def join(self, first: int, second: int) -> bool:
        """Makes one group of two; False if they were one."""
        first, second = self.find(first), self.find(second)
        self._above[first] = second
        return first != second

    def groups(
        self, items: Iterable[int], number: Callable[[int], int] = int
    ) -> dict[int, tuple[int, ...]]:
        """The items of each group; `number` gives the number of an item."""
        groups: dict[int, list[int]] = {}
        for item in items:
            groups.setdefault(self.find(number(item)), []).append(item)
        return {key: tuple(group) for key, group in groups.items()}
