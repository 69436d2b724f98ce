"""Molecule-like graphs, and cells run over them."""

from __future__ import annotations

import torch
from strategies import bond_schema, dags
from torch import Tensor

from graphfold.batching import Batch, Cell, Network, Rounds, build_schedule
from graphfold.dag import Column, TypedDAG

BOND = (Column("kind", "int64", size=4), Column("ring", "bool"))
SCHEMA = bond_schema(BOND)
SIZE = 4

molecules = dags(SCHEMA, max_nodes=8, symmetric=True, outputs="all")


def run(cell: Cell | list[Cell], dag: TypedDAG, x: Tensor, rounds: int = 1) -> dict[str, Tensor]:
    """All fields after some rounds; contracts compare compiled cells with eager ones."""
    passes = [Rounds("bond", rounds)]
    network = Network(SCHEMA, (passes[0], {"atom": cell}), run="eager")
    if x.dtype == torch.float64:
        network = network.double()
    states = network(Batch(dag, build_schedule(dag, passes)), {"atom": x})
    return {name: states[name] for name in states}


def atom_features(dag: TypedDAG) -> Tensor:
    return torch.randn(dag.num_nodes, SIZE)


def edge_index(dag: TypedDAG) -> Tensor:
    """[2, num_edges] as PyTorch Geometric has it: source, target."""
    relation = dag.relations["bond"]
    target = torch.repeat_interleave(torch.arange(dag.num_nodes), relation.ptr.diff())
    return torch.stack([relation.index, target])


def adjacency(dag: TypedDAG) -> Tensor:
    """[num_nodes, num_nodes] 1 where the column's node is read by the row's."""
    source, target = edge_index(dag)
    matrix = torch.zeros(dag.num_nodes, dag.num_nodes)
    return matrix.index_put((target, source), torch.ones(len(source)), accumulate=True)
