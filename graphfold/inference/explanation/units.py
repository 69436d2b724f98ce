"""Units: the nodes and bonds that a prediction is divided among, and their shares of the input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphfold.batching import Batch, Rounds
from graphfold.dag import Schema, TypedDAG
from graphfold.layers import ColumnEncoder, GraphModel

#: Where bonds are nodes: their type, the relation to the atom where one ends, and the prefix of the
#: columns of the atom where it begins.
BOND, ARRIVES, SOURCE = "bond", "arrives", "source_"


@dataclass(frozen=True, eq=False)
class InputShare:
    """The share of some columns in the inputs of the nodes of one type.

    Args:
        node_type: the type.
        values: [num_nodes_of_type, width]; the shares of a type add up to what the encoder gives.
        unit: [num_nodes_of_type] the unit that each row belongs to.
    """

    node_type: str
    values: Tensor
    unit: Tensor


@dataclass(frozen=True, eq=False)
class Kind:
    """Units of one kind, such as atoms.

    Args:
        name: the name of the node type or relation.
        unit: [count] their numbers; a node has its own number, edges those after all nodes.
        graph: [count] the graph of each, never decreasing.
        ends: [count, 2] the nodes that each joins; None where units are no bonds.
    """

    name: str
    unit: Tensor
    graph: Tensor
    ends: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Units:
    """All units of a batch.

    A node is one unit, with its whole input. Where bonds are nodes, the two directions of a bond
    are one unit; the features of an atom that a bond's input repeats belong to that atom. Where
    bonds are edges with features, both edges between two nodes are one unit; it has no share of the
    input of nodes, so that only masking can say what it contributes.

    Args:
        count: numbers of units are below this.
        shares: the inputs of nodes, divided among units.
        kinds: the units by kind.
        edges: relation -> [num_edges] the unit of each edge with features.
    """

    count: int
    shares: tuple[InputShare, ...]
    kinds: tuple[Kind, ...]
    edges: dict[str, Tensor]


def kind_names(model: GraphModel, schema: Schema) -> list[str]:
    """The names of all kinds of units: node types with features, then relations with features."""
    types = [t.name for t in schema.types if t.name in model.encoder.encoders]
    return types + _relations_with_features(model, schema)


def find_units(model: GraphModel, batch: Batch) -> Units:
    """The units of a batch, whose schedule shares nothing."""
    dag, count = batch.dag, batch.dag.num_nodes
    shares: list[InputShare] = []
    kinds: list[Kind] = []
    for node_type in dag.schema.types:
        nodes = dag.nodes_of_type(node_type.name)
        if node_type.name not in model.encoder.encoders:
            continue  # no features: it says nothing of its own
        if _is_directed_bond(node_type.name, dag.schema):
            shares += _shares_of_bonds(model, dag, nodes)
            ends = _ends_of_bonds(dag, nodes)[::2]
            kinds.append(Kind(BOND, nodes[::2], dag.batch[nodes[::2]], ends))
            continue
        values = model.encoder.encoders[node_type.name](dag.features(node_type.name))
        shares.append(InputShare(node_type.name, values.detach(), nodes))
        kinds.append(Kind(node_type.name, nodes, dag.batch[nodes]))
    edges: dict[str, Tensor] = {}
    for name in _relations_with_features(model, dag.schema):
        kind, edges[name] = _units_of_edges(dag, name, count)
        count += len(kind.unit)
        kinds.append(kind)
    return Units(count, tuple(shares), tuple(kinds), edges)


def _is_directed_bond(name: str, schema: Schema) -> bool:
    return name == BOND and any(relation.name == ARRIVES for relation in schema.relations)


def _shares_of_bonds(model: GraphModel, dag: TypedDAG, nodes: Tensor) -> Iterator[InputShare]:
    """The share of the features of the bond, and that of the atom where it begins."""
    encoder, columns = model.encoder.encoders[BOND], dag.features(BOND)
    assert isinstance(encoder, ColumnEncoder)
    of_atom = {name for name in columns if name.startswith(SOURCE)}
    undirected = nodes[torch.arange(len(nodes), device=nodes.device) // 2 * 2]
    for names, unit in (
        (columns.keys() - of_atom, undirected),
        (of_atom, _ends_of_bonds(dag, nodes)[:, 0]),
    ):
        yield InputShare(BOND, encoder.share_of(names, columns).detach(), unit)


def _ends_of_bonds(dag: TypedDAG, bonds: Tensor) -> Tensor:
    """[num_bonds, 2] the atoms where each directed bond begins and ends."""
    relation = dag.relations[ARRIVES]
    ends = torch.zeros(dag.num_nodes, dtype=torch.int64, device=bonds.device)
    ends[relation.index] = _receivers(relation.ptr)
    end = ends[bonds]
    return torch.stack([end.view(-1, 2).flip(1).flatten(), end], dim=1)


def _receivers(ptr: Tensor) -> Tensor:
    """[num_edges] the node that receives each edge."""
    return torch.repeat_interleave(torch.arange(len(ptr) - 1, device=ptr.device), ptr.diff())


def _relations_with_features(model: GraphModel, schema: Schema) -> list[str]:
    followed = {item.relation for item in model.passes if isinstance(item, Rounds)}
    return [edge.name for edge in schema.relations if edge.features and edge.name in followed]


def _units_of_edges(dag: TypedDAG, name: str, first: int) -> tuple[Kind, Tensor]:
    """The edges between two nodes as one unit, and the unit of each edge."""
    relation = dag.relations[name]
    ends = torch.stack([relation.index, _receivers(relation.ptr)], dim=1).sort(dim=1).values
    pairs, place = torch.unique(ends, dim=0, return_inverse=True)
    units = torch.arange(first, first + len(pairs), device=ends.device)
    return Kind(name, units, dag.batch[pairs[:, 0]], pairs), place + first
