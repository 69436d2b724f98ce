"""Directed bonds as nodes of the graph, for messages that travel along bonds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rdkit import Chem

from graphfold.dag import EdgeType, GraphBuilder, NodeType
from graphfold.datasets.molecules.features.feature_set import FeatureSet
from graphfold.errors import RecordError

CONTINUES = EdgeType("continues")
ARRIVES = EdgeType("arrives")


def directed_bond(features: FeatureSet) -> NodeType:
    """The type of a bond: its features, and as `source_...` those of the atom that it leaves."""
    source = [replace(column, name=f"source_{column.name}") for column in features.atom_columns]
    return NodeType("bond", 0, (*features.bond_columns, *source))


#: So many neighbours make some ten thousand pairs of bonds; no chemistry needs them.
MOST_NEIGHBOURS = 100


def add_directed_bonds(
    graph: GraphBuilder,
    sources: Sequence[int],
    targets: Sequence[int],
    atom_features: Mapping[str, Any],
    bond_features: Mapping[str, Any],
) -> None:
    """Adds a node of type `bond` for each direction of each bond, after the atoms.

    The relation `continues` leads from u -> v to every v -> w but the way back v -> u; `arrives`
    leads from v -> w to the atom w. So the sum over the neighbours in `continues` is the message of
    Yang et al. (2019), https://arxiv.org/abs/1904.01561, equation 4. The same as the sum over the
    bonds that arrive at v, less the way back; but that is two gathers and a subtraction over rows
    of states, where this is one gather over a third more edges: on Lipophilicity at width 300
    training takes 8 to 19 % longer with it. The edges grow with the square of an atom's neighbours,
    hence `refuse_crowded`.

    Args:
        graph: the unfinished graph, with the atoms as its first nodes.
        sources: [num_directed_bonds] the atom that each bond leaves; the two directions of a bond
            stand next to each other.
        targets: [num_directed_bonds] the atom where it arrives.
        atom_features: name -> [num_atoms] codes.
        bond_features: name -> [num_directed_bonds] codes.
    """
    source_features: dict[str, Any] = {
        f"source_{name}": [codes[atom] for atom in sources] for name, codes in atom_features.items()
    }
    bonds = graph.nodes("bond", len(sources), **bond_features, **source_features)
    arriving: list[list[int]] = [[] for _ in range(bonds.start)]
    for bond, atom in enumerate(targets):
        arriving[atom].append(bond)
    # In the order of what they are: so equal surroundings look equal, and can be shared.
    keys = list(zip(*bond_features.values(), *source_features.values(), strict=True))
    for found in arriving:
        found.sort(key=keys.__getitem__)
    pairs = [
        (before, bond)
        for bond, atom in enumerate(sources)
        for before in arriving[atom]
        if before != bond ^ 1
    ]
    ends = [(bond, atom) for atom, found in enumerate(arriving) for bond in found]
    first = bonds.start
    graph.edges("continues", [first + b for b, _ in pairs], [first + b for _, b in pairs])
    graph.edges("arrives", [first + bond for bond, _ in ends], [atom for _, atom in ends])


def refuse_crowded(molecule: Chem.Mol) -> None:
    """Raises RecordError if an atom has more than `MOST_NEIGHBOURS` neighbours."""
    if molecule.GetNumBonds() <= MOST_NEIGHBOURS:
        return
    most = max(atom.GetDegree() for atom in molecule.GetAtoms())
    if most > MOST_NEIGHBOURS:
        raise RecordError(
            f"an atom has {most} neighbours; where bonds are nodes, {MOST_NEIGHBOURS} are allowed",
            "Set directed_bonds=false, or data.on_error=skip.",
        )
