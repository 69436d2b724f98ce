"""From molecules as flat lists of numbers to one `TypedDAG`, by array operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.dag import Column, Relation, Schema, TypedDAG
from graphfold.dag.assemble import encode_strings, to_tensor
from graphfold.dag.depth import IntArray, count_pointers, run_pointers, runs, stable_order
from graphfold.datasets.molecules.features.facts import AtomFacts, BondFacts
from graphfold.datasets.molecules.features.feature_set import FeatureSet

#: Entries of a table that is made instead of sorting numbers.
_LARGEST_TABLE = 1 << 22


class MoleculeArrays:
    """Molecules one after another; numbers of atoms are those within their molecule.

    Attributes:
        lines: [num_graphs] where their records begin.
        atoms: [num_atoms] the number of the facts of each atom.
        bonds: [num_bonds] the number of the facts of each bond.
        ends: [2 * num_bonds] the first and the last atom of each bond.
        rings: [sum of ring sizes] the atoms of all rings, in the order of the rings.
        ring_sizes: [num_rings].
        num_atoms, num_bonds, num_rings: [num_graphs] how many each molecule has.
    """

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.atoms: list[int] = []
        self.bonds: list[int] = []
        self.ends: list[int] = []
        self.rings: list[int] = []
        self.ring_sizes: list[int] = []
        self.num_atoms: list[int] = []
        self.num_bonds: list[int] = []
        self.num_rings: list[int] = []

    def add(
        self,
        atoms: Sequence[int],
        ends: Iterable[int],
        bonds: Sequence[int],
        rings: Sequence[Sequence[int]],
    ) -> None:
        """Adds the lists of one molecule."""
        self.atoms += atoms
        self.bonds += bonds
        self.ends += ends
        self.rings += chain.from_iterable(rings)
        self.ring_sizes += map(len, rings)
        self.num_atoms.append(len(atoms))
        self.num_bonds.append(len(bonds))
        self.num_rings.append(len(rings))


class _Ranked(NamedTuple):
    """Rows of features as their places among the different ones, in ascending order.

    Args:
        table: the different rows.
        rank: [num_rows] the place of each row.
    """

    table: list[tuple[Any, ...]]
    rank: IntArray

    def columns(self, space: str, columns: Sequence[Column], rows: IntArray) -> dict[str, Tensor]:
        """The values of some rows by column."""
        chosen = torch.from_numpy(self.rank[rows])
        values = zip(*self.table, strict=True) if self.table else ((),) * len(columns)
        return {
            column.name: to_tensor(space, column, list(different)).index_select(0, chosen)
            for column, different in zip(columns, values, strict=True)
        }


class _Directed(NamedTuple):
    """Both directions of every bond, next to each other.

    Args:
        bond: [num_directed] the bond.
        source: [num_directed] the atom that it leaves.
        target: [num_directed] the atom where it arrives.
        rank: [num_directed] the place of its features and those of its source among all.
    """

    bond: IntArray
    source: IntArray
    target: IntArray
    rank: IntArray

    def arriving(self) -> IntArray:
        """[num_directed] the bonds by the atom where they arrive, there by what they are."""
        most = int(self.rank.max(initial=0)) + 1
        return stable_order(self.target * most + self.rank)


class _Nodes(NamedTuple):
    """The places of the atoms and of the directed bonds among the nodes.

    Args:
        first_atom: [num_graphs + 1] where the atoms of each graph begin among all atoms.
        atom: [num_atoms] the node of each atom.
        bond: [num_directed] the node of each directed bond; [0] where these are no nodes.
        num_nodes: [num_graphs] the nodes of each graph.
    """

    first_atom: IntArray
    atom: IntArray
    bond: IntArray
    num_nodes: IntArray


def build_graphs(
    schema: Schema,
    features: FeatureSet,
    arrays: MoleculeArrays,
    atom_facts: Sequence[AtomFacts],
    bond_facts: Sequence[BondFacts],
    graph_columns: Mapping[str, list[Any]],
    file: str,
) -> TypedDAG:
    """The graphs that `MoleculeGraphs.add` would write; bonds are nodes if there is such a type.

    Args:
        schema: of the graphs.
        features: of their atoms and bonds.
        arrays: the molecules.
        atom_facts: number -> facts of an atom, as if it had no neighbours and no ring.
        bond_facts: number -> facts of a bond, as if it were in no ring.
        graph_columns: name -> [num_graphs] features and targets of graphs.
        file: where they come from.

    Raises:
        SchemaError: if a value of a graph does not fit its column.
    """
    nodes = _place_nodes(arrays, bonds_are_nodes=len(schema.types) > 1)
    ends = _array(arrays.ends).reshape(-1, 2)
    ends += nodes.first_atom[:-1].repeat(_array(arrays.num_bonds))[:, None]
    ring_atom, ring_bond = _in_rings(arrays, nodes.first_atom, ends)
    atoms = _rank_atoms(arrays, ends, ring_atom, atom_facts, features)
    bonds = _rank_bonds(arrays, ring_bond, bond_facts, features)
    directed = _directed(ends, atoms, bonds)
    columns, dictionaries = _graph_columns(schema, graph_columns)
    all_atoms = np.arange(len(nodes.atom))
    columns["type:atom"] = atoms.columns("type:atom", features.atom_columns, all_atoms)
    if len(schema.types) > 1:
        columns["type:bond"] = _bond_columns(schema, features, atoms, bonds, directed)
        relations = _bond_relations(directed, nodes.atom, nodes.bond)
    else:
        order = directed.arriving()
        columns["relation:bond"] = bonds.columns(
            "relation:bond", features.bond_columns, directed.bond[order]
        )
        relations = {"bond": _relation(directed.source[order], directed.target, len(nodes.atom))}
    return TypedDAG(
        schema=schema,
        **_node_tensors(nodes, arrays),
        columns={space: columns.get(space, {}) for space in schema.spaces()},
        relations=relations,
        dictionaries=dictionaries,
        files=(file,),
    )


def _place_nodes(arrays: MoleculeArrays, bonds_are_nodes: bool) -> _Nodes:
    """The nodes of a graph are its atoms, then its directed bonds, if these are nodes."""
    num_atoms, num_bonds = _array(arrays.num_atoms), _array(arrays.num_bonds)
    own = 2 * num_bonds if bonds_are_nodes else np.zeros_like(num_bonds)
    first_atom, first_bond = run_pointers(num_atoms), run_pointers(own)
    return _Nodes(
        first_atom,
        np.arange(first_atom[-1]) + first_bond[:-1].repeat(num_atoms),
        np.arange(first_bond[-1]) + first_atom[1:].repeat(own),
        num_atoms + own,
    )


def _node_tensors(nodes: _Nodes, arrays: MoleculeArrays) -> dict[str, Any]:
    """The fields of a `TypedDAG` that say where its nodes are; none of them has an input."""
    num_nodes, num_graphs = int(nodes.num_nodes.sum()), len(nodes.num_nodes)
    op_type = np.ones(num_nodes, dtype=np.int64)
    op_type[nodes.atom] = 0
    span = np.full((num_nodes, 2), -1)
    first = nodes.first_atom
    span[nodes.atom, 0] = np.arange(len(nodes.atom)) - first[:-1].repeat(first[1:] - first[:-1])
    span[nodes.atom, 1] = span[nodes.atom, 0] + 1
    lines, numbers = _array(arrays.lines), np.arange(num_graphs)
    origin = np.stack([np.zeros_like(lines), lines, numbers], axis=1)
    return {
        "op_type": torch.from_numpy(op_type),
        "input_ptr": torch.zeros(num_nodes + 1, dtype=torch.int64),
        "input_index": torch.zeros(0, dtype=torch.int64),
        "batch": torch.from_numpy(numbers.repeat(nodes.num_nodes)),
        "num_graphs": num_graphs,
        "depth": torch.zeros(num_nodes, dtype=torch.int64),
        "output_ptr": torch.from_numpy(first),
        "output_index": torch.from_numpy(nodes.atom),
        "span": torch.from_numpy(span),
        "origin": torch.from_numpy(origin),
    }


def _in_rings(
    arrays: MoleculeArrays, first_atom: IntArray, ends: IntArray
) -> tuple[IntArray, IntArray]:
    """1 for each atom that is in a ring, else 0; and the same for the bonds."""
    sizes, num_rings = _array(arrays.ring_sizes), _array(arrays.num_rings)
    first = run_pointers(sizes)
    atoms = _array(arrays.rings) + first_atom[:-1].repeat(num_rings).repeat(sizes)
    following = np.arange(1, len(atoms) + 1)
    following[first[1:] - 1] = first[:-1]  # the last atom of a ring is bound to the first
    num_atoms = int(first_atom[-1])
    in_ring = np.zeros(num_atoms, dtype=np.int64)
    in_ring[atoms] = 1
    sides = np.stack([atoms, atoms[following]], axis=1)
    pairs = _pairs(np.concatenate([ends, sides]))
    # Ends of a bond are near each other, so a table of all pairs that there may be is small.
    is_small = int(pairs.max(initial=0)) < _LARGEST_TABLE
    found = np.isin(pairs[: len(ends)], pairs[len(ends) :], kind="table" if is_small else "sort")
    return in_ring, found.astype(np.int64)


def _pairs(ends: IntArray) -> IntArray:
    """A number for each pair of atoms, whichever comes first."""
    first, apart = np.minimum(*ends.T), np.abs(ends[:, 0] - ends[:, 1])
    numbers: IntArray = first * (int(apart.max(initial=0)) + 1) + apart
    return numbers


def _rank_atoms(
    arrays: MoleculeArrays,
    ends: IntArray,
    in_ring: IntArray,
    facts: Sequence[AtomFacts],
    features: FeatureSet,
) -> _Ranked:
    neighbours = np.bincount(ends.ravel(), minlength=len(in_ring))
    stride = int(neighbours.max(initial=0)) + 1

    def row(kind: int) -> tuple[Any, ...]:
        number, degree, ring = kind // 2 // stride, kind // 2 % stride, kind % 2
        known = facts[number]
        return features.atom_row(known._replace(degree=known.degree + degree, in_ring=bool(ring)))

    return _rank((_array(arrays.atoms) * stride + neighbours) * 2 + in_ring, row)


def _rank_bonds(
    arrays: MoleculeArrays, in_ring: IntArray, facts: Sequence[BondFacts], features: FeatureSet
) -> _Ranked:
    def row(kind: int) -> tuple[Any, ...]:
        return features.bond_row(facts[kind // 2]._replace(in_ring=bool(kind % 2)))

    return _rank(_array(arrays.bonds) * 2 + in_ring, row)


def _rank(kinds: IntArray, row: Callable[[int], tuple[Any, ...]]) -> _Ranked:
    """The rows of all kinds, each made once."""
    different, kind = _distinct(kinds)
    rows = [row(number) for number in different.tolist()]
    table = sorted({*rows})
    place = {row: number for number, row in enumerate(table)}
    return _Ranked(table, _array([place[row] for row in rows])[kind])


def _distinct(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """As numpy's `unique` with `return_inverse`, without sorting where the numbers are small."""
    size = int(numbers.max(initial=-1)) + 1
    if size >= _LARGEST_TABLE:
        return np.unique(numbers, return_inverse=True)
    is_there = np.zeros(size, dtype=bool)
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


def _directed(ends: IntArray, atoms: _Ranked, bonds: _Ranked) -> _Directed:
    bond = np.arange(len(ends)).repeat(2)
    source, target = ends.ravel(), ends[:, ::-1].ravel()
    rank = bonds.rank[bond] * (len(atoms.table) + 1) + atoms.rank[source]
    return _Directed(bond, source, target, rank)


def _bond_columns(
    schema: Schema, features: FeatureSet, atoms: _Ranked, bonds: _Ranked, directed: _Directed
) -> dict[str, Tensor]:
    """The features of the bonds themselves, then those of their sources."""
    own = bonds.columns("type:bond", features.bond_columns, directed.bond)
    source = atoms.columns("type:bond", features.atom_columns, directed.source)
    names = [column.name for column in schema.types[1].features]
    return dict(zip(names, [*own.values(), *source.values()], strict=True))


def _bond_relations(
    directed: _Directed, atom_node: IntArray, bond_node: IntArray
) -> dict[str, Relation]:
    """`continues` and `arrives`, see `add_directed_bonds`."""
    num_nodes = len(atom_node) + len(bond_node)
    arriving = directed.arriving()
    ptr = count_pointers(directed.target, len(atom_node))
    first, last = ptr[directed.source], ptr[directed.source + 1]
    before = arriving[runs(first, last)]
    after = np.arange(len(bond_node)).repeat(last - first)
    is_on = before != after ^ 1  # the way back stands next to it
    return {
        "continues": _relation(bond_node[before[is_on]], bond_node[after[is_on]], num_nodes),
        "arrives": _relation(bond_node[arriving], atom_node[directed.target], num_nodes),
    }


def _relation(source: IntArray, target: IntArray, num_nodes: int) -> Relation:
    """Edges whose sources are sorted by their targets; the targets need not be."""
    return Relation(torch.from_numpy(count_pointers(target, num_nodes)), torch.from_numpy(source))


def _graph_columns(
    schema: Schema, values: Mapping[str, list[Any]]
) -> tuple[dict[str, dict[str, Tensor]], dict[tuple[str, str], tuple[str, ...]]]:
    """The columns of graphs, and the strings of those that hold codes."""
    columns: dict[str, Tensor] = {}
    dictionaries: dict[tuple[str, str], tuple[str, ...]] = {}
    for column in schema.spaces()["graph"]:
        rows = values[column.name]
        if column.dtype == "string":
            rows, dictionaries["graph", column.name] = encode_strings(rows)
        columns[column.name] = to_tensor("graph", column, rows)
    return {"graph": columns}, dictionaries


def _array(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
