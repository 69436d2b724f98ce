"""Molecules as other libraries take them: one-hot features, edges in two rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphfold.dag import TypedDAG
from graphfold.layers import ColumnEncoder


class MoleculeTensors(NamedTuple):
    """A batch of molecules."""

    atoms: Tensor  # [num_atoms, num_atom_features] one-hot
    bonds: Tensor  # [num_bonds, num_bond_features] one-hot, a row for each direction
    source: Tensor  # [num_bonds] the atom that the bond leaves
    target: Tensor  # [num_bonds] the atom where it arrives
    reverse: Tensor  # [num_bonds] the other direction; of graphs with directed bonds only
    molecule: Tensor  # [num_atoms] the molecule of each atom
    num_molecules: int

    def to(self, like: Tensor) -> MoleculeTensors:
        """The same in the precision and on the device of a tensor."""
        device = like.device
        return MoleculeTensors(
            self.atoms.to(like),
            self.bonds.to(like),
            self.source.to(device),
            self.target.to(device),
            self.reverse.to(device),
            self.molecule.to(device),
            self.num_molecules,
        )


class OneHot:
    """One-hot features of the codes that occur, and the weights that stand for them.

    A linear layer over these features equals a `ColumnEncoder` with the same weights. Codes that do
    not occur are left out: they would only cost the baselines time.

    Args:
        batches: the columns of all batches, name -> [num_rows] codes.
    """

    def __init__(self, batches: Sequence[Mapping[str, Tensor]]) -> None:
        self.codes = {
            name: torch.unique(torch.cat([columns[name].long() for columns in batches]))
            for name in batches[0]
        }

    @property
    def size(self) -> int:
        """The number of features."""
        return sum(map(len, self.codes.values()))

    def __call__(self, columns: Mapping[str, Tensor]) -> Tensor:
        """[num_rows, num_features]"""
        parts = [columns[name].unsqueeze(1) == codes for name, codes in self.codes.items()]
        return torch.cat(parts, dim=1).float()

    def weight(self, encoder: ColumnEncoder, prefix: str = "") -> Tensor:
        """[size, num_features] the rows of an encoder's table, as `nn.Linear` holds them.

        Args:
            encoder: of columns whose names are these with a prefix, among others.
            prefix: of the names.
        """
        assert encoder.table is not None
        place = {column.name: number for number, column in enumerate(encoder.codes)}
        index = [encoder.starts[place[prefix + name]] + c for name, c in self.codes.items()]
        return encoder.table.detach()[torch.cat(index)].T.contiguous()

    def linear(self, encoder: ColumnEncoder, prefix: str = "") -> nn.Linear:
        """The encoder as a linear layer without bias."""
        weight = self.weight(encoder, prefix)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight.data.copy_(weight)
        return layer


def atom_columns(dag: TypedDAG) -> Mapping[str, Tensor]:
    """The features of the atoms."""
    return dag.features("atom")


def bond_columns(dag: TypedDAG) -> Mapping[str, Tensor]:
    """The features of the directed bonds, in the order of `ends`."""
    if "bond" in dag.relations:
        return dag.columns["relation:bond"]
    columns = dag.features("bond")
    return {name: codes for name, codes in columns.items() if not name.startswith("source_")}


def ends(dag: TypedDAG) -> tuple[Tensor, Tensor]:
    """(source, target): the atoms that each directed bond leaves and reaches."""
    number = torch.empty(dag.num_nodes, dtype=torch.int64)
    for node_type in dag.schema.types:
        nodes = dag.nodes_of_type(node_type.name)
        number[nodes] = torch.arange(len(nodes))
    name = "bond" if "bond" in dag.relations else "arrives"
    relation = dag.relations[name]
    reader = torch.repeat_interleave(torch.arange(dag.num_nodes), relation.ptr.diff())
    if name == "bond":
        return number[relation.index], number[reader]
    target = torch.empty_like(relation.index)
    target[number[relation.index]] = number[reader]
    return target[reverse(target)], target


def reverse(ends: Tensor) -> Tensor:
    """[num_bonds] the other direction of each bond node: they stand next to each other."""
    return torch.arange(len(ends)) ^ 1


def molecule_tensors(dag: TypedDAG, atoms: OneHot, bonds: OneHot) -> MoleculeTensors:
    """A batch in the other form."""
    source, target = ends(dag)
    return MoleculeTensors(
        atoms(atom_columns(dag)),
        bonds(bond_columns(dag)),
        source,
        target,
        reverse(source),
        dag.batch[dag.nodes_of_type("atom")],
        dag.num_graphs,
    )
