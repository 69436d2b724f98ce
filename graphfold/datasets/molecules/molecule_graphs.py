"""From molecules to graphs: the nodes and edges of a molecule, many molecules in one `TypedDAG`.

`MoleculeGraphs` is the form of the graphs. `MoleculeChunk` collects molecules: each feature of each
atom and bond by one call of RDKit, everything else for all molecules together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from torch import Tensor

from graphfold.dag import Column, EdgeType, NodeType, Relation, Schema, TypedDAG
from graphfold.dag.assemble import Columns, Dictionaries, encode_strings, to_tensor
from graphfold.dag.builder import NO_SPAN
from graphfold.dag.depth import (
    IntArray,
    compute_depth,
    count_pointers,
    run_pointers,
    runs,
    stable_order,
)
from graphfold.datasets.adapter import NUMBERS
from graphfold.datasets.molecules.atom_features import Feature, FeatureSet, Item, Numbers
from graphfold.datasets.molecules.fragments import (
    FRAGMENT,
    FRAGMENT_INPUTS,
    MOLECULE,
    UpperNodes,
    fragment_nodes,
)
from graphfold.datasets.molecules.molecule import atoms_of, bonds_of, has_stereo, label_stereo
from graphfold.datasets.molecules.reactions import Reaction, ReactionMode
from graphfold.datasets.molecules.record_table import BOND_ENDS
from graphfold.errors import RecordError

Fragments = Literal["none", "rings_and_paths", "brics"]

#: Relations between directed bonds, and from them to the atoms where they arrive.
CONTINUES = EdgeType("continues")
ARRIVES = EdgeType("arrives")

#: So many neighbours make some ten thousand pairs of bonds; no chemistry needs them.
MOST_NEIGHBOURS = 100


@dataclass(frozen=True)
class MoleculeGraphs:
    """The form of the graphs of molecules.

    With `directed_bonds` each direction of each bond is a node of type `bond` after the atoms,
    which has the features of the bond and, as `source_...`, those of the atom that it leaves. The
    relation `continues` leads from u -> v to every v -> w but the way back v -> u; `arrives` leads
    from v -> w to the atom w. So the sum over the neighbours in `continues` is the message of Yang
    et al. (2019), https://arxiv.org/abs/1904.01561, equation 4. The sum over the bonds that arrive
    at v, less the way back, is the same, but takes two gathers and a subtraction over rows of
    states instead of one gather over a third more edges: training on Lipophilicity at width 300
    would take 8 to 19 % longer. The edges grow with the square of an atom's neighbours, hence
    `MOST_NEIGHBOURS`.

    Neighbours are sorted by their features, not by their numbers: so equal surroundings have equal
    rows, and can be shared.

    Args:
        features: the features of atoms and bonds.
        directed_bonds: whether each direction of a bond is a node, for messages along bonds.
        fragments: how a molecule is cut into fragments: "none", "rings_and_paths" or "brics".
        measures: "atom" or "bond" if these have targets; None if only molecules have.
        reaction: the columns of reactions, see `read_reaction`; None if the graphs are molecules.
        numbered: whether atoms and bonds have their numbers, see `Adapter.numbered`.
    """

    features: FeatureSet
    directed_bonds: bool = False
    fragments: Fragments = "none"
    measures: str | None = None
    reaction: ReactionMode | None = None
    numbered: bool = False

    @property
    def has_fragments(self) -> bool:
        """True if the graphs have nodes for fragments and for the molecule."""
        return self.fragments != "none"

    @property
    def types(self) -> tuple[NodeType, ...]:
        """The types of nodes."""
        atom = self.atom_columns + self._number("node")
        bond = self.bond_columns + self._number("edge")
        source = (replace(column, name=f"source_{column.name}") for column in atom)
        bonds = (NodeType("bond", 0, (*bond, *source)),) if self.directed_bonds else ()
        above = (FRAGMENT, MOLECULE) if self.has_fragments else ()
        ends = (BOND_ENDS,) if self.measures == "bond" else ()
        return (NodeType("atom", 0, atom), *bonds, *above, *ends)

    @property
    def atom_columns(self) -> tuple[Column, ...]:
        """The feature columns of an atom."""
        return self._columns(self.features.atom, self.features.atom_columns)

    @property
    def bond_columns(self) -> tuple[Column, ...]:
        """The feature columns of a bond."""
        return self._columns(self.features.bond, self.features.bond_columns)

    def _number(self, level: str) -> tuple[Column, ...]:
        """The column of the numbers of atoms ("node") or bonds ("edge"), if they have any."""
        return (Column(NUMBERS[level], "int64"),) if self.numbered else ()

    def _columns(
        self, features: Sequence[Feature], columns: Sequence[Column]
    ) -> tuple[Column, ...]:
        if self.reaction is None:
            return tuple(columns)
        pairs = map(self.reaction.columns, features, columns)
        return tuple(chain.from_iterable(pairs))

    @property
    def inputs(self) -> EdgeType:
        """The type of the inputs."""
        return FRAGMENT_INPUTS if self.has_fragments else EdgeType("inputs")

    @property
    def relations(self) -> tuple[EdgeType, ...]:
        """The relations between nodes."""
        if self.directed_bonds:
            return CONTINUES, ARRIVES
        return (EdgeType("bond", self.bond_columns + self._number("edge")),)

    @property
    def has_upper_nodes(self) -> bool:
        """True if some nodes have inputs."""
        return self.has_fragments or self.measures == "bond"

    def count(self, molecule: Chem.Mol) -> int:
        """The number of atoms or bonds of a molecule, whichever have targets."""
        if self.measures == "bond":
            return int(molecule.GetNumBonds())
        return int(molecule.GetNumAtoms())

    def upper_nodes(self, molecule: Chem.Mol, num_below: int, places: Sequence[int]) -> UpperNodes:
        """The fragments of a molecule and the molecule, or a node for each bond that has targets.

        Args:
            molecule: the molecule.
            num_below: the number of nodes before these, atoms first.
            places: [num_atoms] the place of each atom in the SMILES.

        Raises:
            RecordError: if bonds are predicted and there is none.
        """
        first_type = len(self.types) - (2 if self.has_fragments else 1)
        if self.has_fragments:
            return fragment_nodes(molecule, self.fragments, first_type, num_below, places)
        ends = [i for b in molecule.GetBonds() for i in (b.GetBeginAtomIdx(), b.GetEndAtomIdx())]
        count = len(ends) // 2
        if not count:
            raise RecordError("the molecule has no bonds to predict")
        outputs = range(num_below, num_below + count)
        return UpperNodes([first_type] * count, [NO_SPAN] * count, [2] * count, ends, outputs, {})


class MoleculeChunk:
    """Collects molecules, and builds their graphs.

    Args:
        schema: of the graphs.
        graphs: their form.
    """

    def __init__(self, schema: Schema, graphs: MoleculeGraphs) -> None:
        self.schema = schema
        self.graphs = graphs
        self._atoms = _Rows(graphs.features.atom, graphs.atom_columns, graphs.reaction)
        self._bonds = _Rows(graphs.features.bond, graphs.bond_columns, graphs.reaction)
        self._begins: list[int] = []  # the first atom of each bond, and the last
        self._ends: list[int] = []
        self._num_atoms: list[int] = []
        self._num_bonds: list[int] = []
        self._upper: list[UpperNodes] = []
        self._lines: list[int] = []
        self._places: list[Sequence[int]] = []
        self._columns: dict[str, list[Any]] = {c.name: [] for c in schema.spaces()["graph"]}
        self._targets: dict[str, list[Any]] = {c.name: [] for c in schema.node_targets}

    def add(
        self,
        line: int,
        molecule: Chem.Mol,
        columns: Mapping[str, Any],
        targets: Mapping[str, Sequence[Any]],
        places: Sequence[int] = (),
        reaction: Reaction | None = None,
    ) -> None:
        """Adds a molecule or a reaction; nothing is added if an error is raised.

        Args:
            line: where its record begins.
            molecule: the sanitised molecule, or that of both sides; CIP labels may be added to it.
            columns: features and targets of its graph; an absent one is a missing value.
            targets: name -> the values of its atoms, or of its bonds; likewise.
            places: [num_atoms] the place of each atom in the SMILES; empty for its number.
            reaction: the reaction, if it is one.

        Raises:
            RecordError: if a feature cannot be computed, an atom has too many bonds for a graph of
                directed bonds, or bonds are predicted and there is none.
        """
        graphs = self.graphs
        if graphs.directed_bonds:
            _refuse_crowded(molecule)
        atoms = atoms_of(molecule)
        bonds = bonds_of(molecule, atoms)
        if graphs.features.labels and has_stereo(str(columns.get("smiles", ""))):
            label_stereo(molecule, atoms, bonds)
        of_atoms = self._atoms.numbers(molecule, atoms)
        of_bonds = self._bonds.numbers(molecule, bonds)
        places = places or range(len(atoms))
        if graphs.has_upper_nodes:
            num_below = len(atoms) + 2 * len(bonds) * graphs.directed_bonds
            self._upper.append(graphs.upper_nodes(molecule, num_below, places))
        self._atoms.add(of_atoms, None if reaction is None else reaction.atoms)
        self._bonds.add(of_bonds, None if reaction is None else reaction.bonds)
        if reaction is None:
            self._begins += map(Chem.Bond.GetBeginAtomIdx, bonds)
            self._ends += map(Chem.Bond.GetEndAtomIdx, bonds)
        else:
            self._begins += reaction.ends[:, 0].tolist()
            self._ends += reaction.ends[:, 1].tolist()
        self._num_atoms.append(len(places))
        self._num_bonds.append(len(bonds if reaction is None else reaction.bonds))
        self._lines.append(line)
        self._places.append(places)
        for name, values in self._columns.items():
            values.append(columns.get(name))
        for name, rows in self._targets.items():
            rows += targets.get(name) or [None] * graphs.count(molecule)

    def build(self, file: str) -> TypedDAG:
        """The graphs of all molecules, in order.

        Raises:
            SchemaError: if a value of a graph or a target does not fit its column.
        """
        nodes = self._place_nodes()
        num_inputs = np.zeros(nodes.number, dtype=np.int64)
        num_inputs[nodes.upper] = _array(chain.from_iterable(u.num_inputs for u in self._upper))
        input_ptr = torch.from_numpy(run_pointers(num_inputs))
        input_index = torch.from_numpy(nodes.named([u.inputs for u in self._upper]))
        outputs = [u.outputs for u in self._upper]
        output_ptr = run_pointers(_array(map(len, outputs))) if outputs else nodes.atom_ptr
        lines, numbers = _array(self._lines), np.arange(len(self._lines))
        columns, dictionaries = self._graph_columns()
        relations = self._relations(columns, nodes)
        self._other_columns(columns, nodes)
        return TypedDAG(
            schema=self.schema,
            op_type=torch.from_numpy(self._op_types(nodes)),
            input_ptr=input_ptr,
            input_index=input_index,
            batch=torch.from_numpy(numbers.repeat(np.diff(nodes.ptr))),
            num_graphs=len(numbers),
            depth=compute_depth(input_ptr, input_index),
            output_ptr=torch.from_numpy(output_ptr),
            output_index=torch.from_numpy(nodes.named(outputs) if outputs else nodes.atom),
            span=torch.from_numpy(self._spans(nodes)),
            origin=torch.from_numpy(np.stack([np.zeros_like(lines), lines, numbers], axis=1)),
            columns={space: columns.get(space, {}) for space in self.schema.spaces()},
            relations=relations,
            dictionaries=dictionaries,
            files=(file,),
        )

    def _place_nodes(self) -> _Nodes:
        """The nodes of a graph are its atoms, then its directed bonds, then those with inputs."""
        num_atoms = _array(self._num_atoms)
        num_directed = 2 * _array(self._num_bonds) * self.graphs.directed_bonds
        num_upper = np.zeros_like(num_atoms)
        if self._upper:
            num_upper = _array(len(upper.op_type) for upper in self._upper)
        ptr = run_pointers(num_atoms + num_directed + num_upper)
        first_bond = ptr[:-1] + num_atoms
        return _Nodes(
            ptr,
            run_pointers(num_atoms),
            runs(ptr[:-1], first_bond),
            runs(first_bond, first_bond + num_directed),
            runs(first_bond + num_directed, ptr[1:]),
        )

    def _op_types(self, nodes: _Nodes) -> IntArray:
        op_type = np.zeros(nodes.number, dtype=np.int64)
        op_type[nodes.bond] = 1
        op_type[nodes.upper] = _array(chain.from_iterable(u.op_type for u in self._upper))
        return op_type

    def _spans(self, nodes: _Nodes) -> IntArray:
        """An atom covers its place in the SMILES, a directed bond nothing."""
        span = np.full((nodes.number, 2), -1)
        span[nodes.atom, 0] = _array(chain.from_iterable(self._places))
        span[nodes.atom, 1] = span[nodes.atom, 0] + 1
        upper = chain.from_iterable(pair for u in self._upper for pair in u.span)
        span[nodes.upper] = _array(upper).reshape(-1, 2)
        return span

    def _relations(self, columns: Columns, nodes: _Nodes) -> dict[str, Relation]:
        """The relations; the features of atoms and bonds are added to `columns`."""
        atoms = self._atoms.build(sum(self._num_atoms))
        bonds = self._bonds.build(sum(self._num_bonds))
        if self.graphs.numbered:
            atoms.columns[NUMBERS["node"]] = _numbers(self._num_atoms)
            bonds.columns[NUMBERS["edge"]] = _numbers(self._num_bonds)
        columns["type:atom"] = atoms.columns
        first_atom = nodes.atom_ptr[:-1].repeat(_array(self._num_bonds))
        ends = np.stack([_array(self._begins), _array(self._ends)], axis=1) + first_atom[:, None]
        source, target = ends.ravel(), ends[:, ::-1].ravel()  # of both directions of every bond
        bond = np.arange(len(ends)).repeat(2)
        # Edges sorted by their target atom, then by their features.
        most = int(atoms.rank.max(initial=0)) + 1
        rank = bonds.rank[bond] * most + atoms.rank[source]
        order = stable_order(target * (int(rank.max(initial=0)) + 1) + rank)
        if not self.graphs.directed_bonds:
            columns["relation:bond"] = _taken(bonds.columns, bond[order])
            return {"bond": nodes.relation(nodes.atom[source[order]], nodes.atom[target])}
        source_columns = _taken(atoms.columns, source)
        columns["type:bond"] = {
            **_taken(bonds.columns, bond),
            **{f"source_{name}": column for name, column in source_columns.items()},
        }
        ptr = count_pointers(target, len(nodes.atom))
        first, last = ptr[source], ptr[source + 1]
        before = order[runs(first, last)]
        after = np.arange(len(source)).repeat(last - first)
        is_on = before != after ^ 1  # the way back stands next to it
        before, after = nodes.bond[before[is_on]], nodes.bond[after[is_on]]
        return {
            "continues": nodes.relation(before, after),
            "arrives": nodes.relation(nodes.bond[order], nodes.atom[target]),
        }

    def _graph_columns(self) -> tuple[Columns, Dictionaries]:
        """The columns of graphs, and the strings of those that hold codes."""
        columns: dict[str, Tensor] = {}
        dictionaries: Dictionaries = {}
        for column in self.schema.spaces()["graph"]:
            rows = self._columns[column.name]
            if column.dtype == "string":
                rows, dictionaries["graph", column.name] = encode_strings(rows)
            columns[column.name] = to_tensor("graph", column, rows)
        return {"graph": columns}, dictionaries

    def _other_columns(self, columns: Columns, nodes: _Nodes) -> None:
        """Adds the columns of upper nodes and of their inputs, and the targets of nodes."""
        for space in self._upper[0].columns if self._upper else ():
            columns[space] = {
                column.name: to_tensor(
                    space,
                    column,
                    [*chain.from_iterable(u.columns[space][column.name] for u in self._upper)],
                )
                for column in self.schema.spaces()[space]
            }
        measured = nodes.upper if self.graphs.measures == "bond" else nodes.atom
        columns["node"] = {}
        for column in self.schema.node_targets:
            values = to_tensor("node", column, self._targets[column.name])
            rows = torch.full((nodes.number, *column.shape), column.missing, dtype=values.dtype)
            rows[torch.from_numpy(measured)] = values
            columns["node"][column.name] = rows


class _Ranked(NamedTuple):
    """The features of atoms, or of bonds, with their order.

    Args:
        columns: the values of all rows by the name of the column.
        rank: [num_rows] the place of each row among the different ones, in ascending order.
    """

    columns: dict[str, Tensor]
    rank: IntArray


class _Rows:
    """Collects the features of atoms, or of bonds.

    Args:
        features: the features.
        columns: their columns.
        mode: how a feature has two columns; None if each has one.
    """

    def __init__(
        self, features: Sequence[Feature], columns: Sequence[Column], mode: ReactionMode | None
    ) -> None:
        self._numbers = {feature: feature.collect() for feature in features}
        self._columns = columns
        self._mode = mode
        self._pairs: list[IntArray] = [np.empty((0, 2), dtype=np.int64)]
        self._count = 0

    def numbers(self, molecule: Chem.Mol, items: Sequence[Item]) -> list[Numbers]:
        """For each feature [num_items] numbers of the atoms or bonds of a molecule."""
        return [feature.numbers(molecule, items) for feature in self._numbers]

    def add(self, numbers: Sequence[Numbers], pairs: IntArray | None) -> None:
        """Adds the numbers of one molecule, or of both sides of a reaction and their `pairs`."""
        if pairs is not None:
            self._pairs.append(np.where(pairs < 0, -1, pairs + self._count))
            self._count += len(numbers[0]) if numbers else 0
        for column, more in zip(self._numbers.values(), numbers, strict=True):
            column.extend(more)

    def build(self, count: int) -> _Ranked:
        """The rows of all molecules and their ranks.

        Args:
            count: the number of rows.
        """
        arrays = [feature.array(numbers) for feature, numbers in self._numbers.items()]
        if self._mode is None:
            rows = [
                feature.rows(array) for feature, array in zip(self._numbers, arrays, strict=True)
            ]
        else:
            pairs, mode = np.concatenate(self._pairs), self._mode
            sides = [
                mode.numbers(f, array, pairs)
                for f, array in zip(self._numbers, arrays, strict=True)
            ]
            rows = [*chain.from_iterable(map(mode.rows, self._numbers, sides))]
            arrays = [*chain.from_iterable(sides)]
        columns = zip(self._columns, rows, strict=True)
        return _Ranked({c.name: torch.from_numpy(r) for c, r in columns}, _rank(arrays, count))


def _rank(columns: Sequence[NDArray[Any]], count: int) -> IntArray:
    """[count] the place of each row of the columns among the different ones, in ascending order."""
    rank = np.zeros(count, dtype=np.int64)
    if columns:
        order = np.lexsort(columns[::-1])
        is_new = np.zeros(count, dtype=bool)
        for column in columns:
            values = column[order]
            is_new[1:] |= values[1:] != values[:-1]
        rank[order] = is_new.cumsum()
    return rank


class _Nodes(NamedTuple):
    """The places of atoms, directed bonds and nodes with inputs among all nodes.

    Args:
        ptr: [num_graphs + 1] where the nodes of each graph begin.
        atom_ptr: [num_graphs + 1] where the atoms of each graph begin among all atoms.
        atom: [num_atoms] the node of each atom.
        bond: [num_directed] the node of each directed bond; [0] where these are no nodes.
        upper: [num_upper] the nodes with inputs.
    """

    ptr: IntArray
    atom_ptr: IntArray
    atom: IntArray
    bond: IntArray
    upper: IntArray

    @property
    def number(self) -> int:
        """The number of nodes of all graphs."""
        return int(self.ptr[-1])

    def named(self, nodes: Sequence[Sequence[int]]) -> IntArray:
        """Translates, graph by graph, numbers of nodes within the graph into those among all."""
        first = self.ptr[: len(nodes)].repeat(_array(map(len, nodes)))
        return _array(chain.from_iterable(nodes)) + first

    def relation(self, source: IntArray, target: IntArray) -> Relation:
        """A relation, from the sources of its edges sorted by target."""
        ptr = count_pointers(target, self.number)
        return Relation(torch.from_numpy(ptr), torch.from_numpy(source))


def _taken(columns: Mapping[str, Tensor], rows: IntArray) -> dict[str, Tensor]:
    """Some rows of columns."""
    chosen = torch.from_numpy(rows)
    return {name: column.index_select(0, chosen) for name, column in columns.items()}


def _numbers(counts: Sequence[int]) -> Tensor:
    """[sum of counts] the numbers from 0 on, for each count anew."""
    ends = _array(counts)
    return torch.from_numpy(runs(np.zeros_like(ends), ends))


def _array(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)


def _refuse_crowded(molecule: Chem.Mol) -> None:
    """Raises RecordError if an atom has more than `MOST_NEIGHBOURS` neighbours."""
    if molecule.GetNumBonds() <= MOST_NEIGHBOURS:
        return
    most = max(atom.GetDegree() for atom in molecule.GetAtoms())
    if most > MOST_NEIGHBOURS:
        raise RecordError(
            f"an atom has {most} neighbours; where bonds are nodes, {MOST_NEIGHBOURS} are allowed",
            "Set directed_bonds=false, or data.on_error=skip.",
        )
