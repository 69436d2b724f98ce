"""MoleculeGraphs: what becomes a node and what an edge, and the graph of one molecule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rdkit import Chem

from graphfold.dag import Column, EdgeType, GraphBuilder, NodeType
from graphfold.datasets.molecules.bond_ends import BOND_ENDS
from graphfold.datasets.molecules.directed_bonds import (
    ARRIVES,
    CONTINUES,
    add_directed_bonds,
    directed_bond,
    refuse_crowded,
)
from graphfold.datasets.molecules.features.facts import atom_facts, bond_facts
from graphfold.datasets.molecules.features.feature_set import FeatureSet
from graphfold.datasets.molecules.fragments import (
    FRAGMENT,
    FRAGMENT_INPUTS,
    MOLECULE,
    add_fragments,
)
from graphfold.datasets.molecules.molecule import atoms_of, bonds_of, label_stereo
from graphfold.errors import RecordError

Fragments = Literal["none", "rings_and_paths", "brics"]


@dataclass(frozen=True)
class MoleculeGraphs:
    """The form of the graphs of molecules.

    Args:
        features: the features of atoms and bonds.
        directed_bonds: whether each direction of a bond is a node, for messages along bonds.
        fragments: how a molecule is cut into fragments: "none", "rings_and_paths" or "brics".
        measures: what has targets of its own, "atom" or "bond", if anything has.
    """

    features: FeatureSet
    directed_bonds: bool = False
    fragments: Fragments = "none"
    measures: str | None = None

    @property
    def has_fragments(self) -> bool:
        """True if there are nodes above the atoms."""
        return self.fragments != "none"

    @property
    def types(self) -> tuple[NodeType, ...]:
        """The types of nodes."""
        bonds = (directed_bond(self.features),) if self.directed_bonds else ()
        above = (FRAGMENT, MOLECULE) if self.has_fragments else ()
        ends = (BOND_ENDS,) if self.measures == "bond" else ()
        return (NodeType("atom", 0, self.features.atom_columns), *bonds, *above, *ends)

    @property
    def inputs(self) -> EdgeType:
        """The type of the inputs."""
        return FRAGMENT_INPUTS if self.has_fragments else EdgeType("inputs")

    @property
    def relations(self) -> tuple[EdgeType, ...]:
        """The relations between nodes."""
        if self.directed_bonds:
            return CONTINUES, ARRIVES
        return (EdgeType("bond", self.features.bond_columns),)

    def count(self, molecule: Chem.Mol) -> int:
        """The number of atoms or bonds of a molecule, whichever have targets."""
        if self.measures == "bond":
            return int(molecule.GetNumBonds())
        return int(molecule.GetNumAtoms())

    def add(
        self, graph: GraphBuilder, molecule: Chem.Mol, targets: Mapping[str, Sequence[Any]]
    ) -> None:
        """Adds the nodes and edges of a molecule to the unfinished graph, which is empty so far.

        Args:
            graph: the unfinished graph.
            molecule: the molecule.
            targets: name -> the values of its atoms, or of its bonds.

        Raises:
            RecordError: if bonds shall be nodes and an atom has too many of them, or bonds are
                predicted and there is none.
        """
        measures_bonds = self.measures == "bond"
        self._add_atoms_and_bonds(graph, molecule, {} if measures_bonds else targets)
        if self.has_fragments:
            graph.output(add_fragments(graph, molecule, self.fragments))
        elif measures_bonds:
            ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
            if not ends:
                raise RecordError("the molecule has no bonds to predict")
            graph.output(*graph.nodes(BOND_ENDS.name, len(ends), inputs=ends, **targets))
        else:
            graph.output(*range(molecule.GetNumAtoms()))

    def _add_atoms_and_bonds(
        self, graph: GraphBuilder, molecule: Chem.Mol, atom_targets: Mapping[str, Sequence[Any]]
    ) -> None:
        features = self.features
        atoms = atoms_of(molecule)
        bonds = bonds_of(molecule, atoms)
        if features.labels:
            label_stereo(molecule, atoms, bonds)
        atom_rows = [features.atom_row(facts) for facts in atom_facts(atoms)]
        bond_rows = [features.bond_row(facts) for facts in bond_facts(bonds) for _ in range(2)]
        atom_codes = _by_column(features.atom_columns, atom_rows)
        bond_codes = _by_column(features.bond_columns, bond_rows)
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
        sources = [atom for pair in ends for atom in pair]
        targets = [atom for begin, end in ends for atom in (end, begin)]
        spans = [(index, index + 1) for index in range(len(atoms))]
        graph.nodes("atom", len(atoms), spans, **atom_codes, **atom_targets)
        if self.directed_bonds:
            refuse_crowded(molecule)
            add_directed_bonds(graph, sources, targets, atom_codes, bond_codes)
            return
        # Neighbours in the order of what they are: so equal surroundings look equal, and can be
        # shared.
        keys = [(row, atom_rows[source]) for row, source in zip(bond_rows, sources, strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        bond_codes = {name: [codes[i] for i in order] for name, codes in bond_codes.items()}
        graph.edges("bond", [sources[i] for i in order], [targets[i] for i in order], **bond_codes)


def _by_column(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Column name -> the values of all rows."""
    return {column.name: [row[i] for row in rows] for i, column in enumerate(columns)}
