"""Fragments as nodes: rings, paths and their tree above the atoms of a molecule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rdkit import Chem

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType
from graphfold.datasets.molecules.fragments.fragment_cuts import CUTS, KINDS, Cut, Fragment
from graphfold.datasets.molecules.fragments.fragment_tree import fragment_trees

#: Counts from here on share one code.
MOST = 31

#: A fragment, whose inputs are its atoms and then its children in the tree.
#:
#: - `kind`: ring, path, junction, piece; see `fragment_cuts`.
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

#: The molecule as a whole, whose inputs are the roots of its trees: one for each part of a salt.
MOLECULE = NodeType("molecule", None, inputs=("fragment",))

#: The inputs of a fragment: `is_atom` tells its atoms from its children in the tree.
FRAGMENT_INPUTS = EdgeType("inputs", (Column("is_atom", "bool"),))


def add_fragments(graph: GraphBuilder, molecule: Chem.Mol, option: str) -> int:
    """Adds the fragments of a molecule, the tree over them, and the molecule; returns the last.

    The span of a fragment goes from its first atom to its last one; its inputs say which it has.
    Nothing but the numbers of nodes depends on how the atoms are numbered: whatever needs an order
    takes that of RDKit's canonical ranks.

    Args:
        graph: the unfinished graph, with the atoms as its first nodes.
        molecule: the molecule.
        option: a key of `CUTS`.
    """
    rank = list(Chem.CanonicalRankAtoms(molecule))
    cut = CUTS[option](molecule, rank)
    roots, children = fragment_trees(cut)
    fragments = cut.fragments
    spans = [(min(f.atoms), max(f.atoms) + 1) for f in fragments]
    nodes = graph.nodes("fragment", len(fragments), spans, **_features(molecule, cut))
    for node, fragment, own in zip(nodes, fragments, children, strict=True):
        below = [nodes[child] for child in own]
        is_atom = [True] * len(fragment.atoms) + [False] * len(below)
        graph.inputs(node, [*fragment.atoms, *below], is_atom=is_atom)
    top = graph.node("molecule", span=(0, len(rank)))
    graph.inputs(top, [nodes[root] for root in roots], is_atom=[False] * len(roots))
    return top


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
