"""D-MPNN against its equations, bond by bond, and against chemprop."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from graphfold.batching import Batch, Network, Rounds, build_schedule
from graphfold.batching.native.library import why_missing
from graphfold.dag import GraphBuilder, TypedDAG
from graphfold.datasets.adapter import Record
from graphfold.datasets.molecules.record_table import RecordRow
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.layers import (
    DMPNNAtomCell,
    DMPNNBondCell,
)

#: A lone atom, a bond, a branch, rings that share a bond, and two parts.
SMILES = ("C", "CO", "CC(C)(C)O", "c1ccc2ccccc2c1", "CC(=O)[O-].[Na+]")
DEPTH = 4
SIZE = 6
PASSES = (Rounds("continues", DEPTH - 1), Rounds("arrives", 1))


class Ends(NamedTuple):
    """The directed bonds, numbered among themselves."""

    source: Tensor  # [num_bonds] atom, numbered among the atoms
    target: Tensor
    reverse: Tensor


def molecules(every: Sequence[str] = SMILES) -> TypedDAG:
    adapter = SmilesAdapter(target_columns="y", directed_bonds=True)
    builder = GraphBuilder(adapter.schema)
    for smiles in every:
        adapter.parse(Record(1, RecordRow(smiles, ("1.0",))), builder)
    return builder.build()


def ends(dag: TypedDAG) -> Ends:
    """From the relation `arrives`; the two directions of a bond stand next to each other."""
    number = torch.empty(dag.num_nodes, dtype=torch.int64)
    for name in ("atom", "bond"):
        nodes = dag.nodes_of_type(name)
        number[nodes] = torch.arange(len(nodes))
    arrives = dag.relations["arrives"]
    at = torch.repeat_interleave(torch.arange(dag.num_nodes), arrives.ptr.diff())
    target = torch.empty_like(arrives.index)
    target[number[arrives.index]] = number[at]
    reverse = torch.arange(len(target)) ^ 1
    return Ends(target[reverse], target, reverse)


def make_network() -> tuple[DMPNNBondCell, DMPNNAtomCell, Network]:
    bond, atom = DMPNNBondCell(SIZE), DMPNNAtomCell(SIZE)
    network = Network(
        molecules().schema, *zip(PASSES, [{"bond": bond}, {"atom": atom}], strict=True)
    )
    return bond, atom, network.double()


def run(network: Network, dag: TypedDAG, x: dict[str, Tensor]) -> Tensor:
    """[num_atoms, SIZE]"""
    states = network(Batch(dag, build_schedule(dag, PASSES)), x)
    return states.at("h", dag.nodes_of_type("atom"))


def random_x(dag: TypedDAG) -> dict[str, Tensor]:
    return {
        name: torch.randn(len(dag.nodes_of_type(name)), SIZE, dtype=torch.float64)
        for name in ("atom", "bond")
    }


def test_it_equals_the_equations_bond_by_bond():
    bond, atom, network = make_network()
    dag = molecules()
    x, (source, target, reverse) = random_x(dag), ends(dag)
    h = [torch.relu(row) for row in x["bond"]]
    for _ in range(DEPTH - 1):
        new = []
        for number, row in enumerate(x["bond"]):
            before = [
                h[other]
                for other in range(len(h))
                if target[other] == source[number] and other != reverse[number]
            ]
            message = torch.stack(before).sum(0) if before else torch.zeros_like(row)
            new.append(torch.relu(row + bond.message.weight @ message))
        h = new
    want = []
    for number, row in enumerate(x["atom"]):
        arrived = [h[other] for other in range(len(h)) if target[other] == number]
        total = torch.stack(arrived).sum(0) if arrived else torch.zeros_like(row)
        want.append(torch.relu(row + atom.from_bonds.weight @ total + atom.from_bonds.bias))
    torch.testing.assert_close(run(network, dag, x), torch.stack(want))


@pytest.mark.skipif(why_missing(torch.float64) is not None, reason="nothing can be compiled")
def test_atoms_are_compiled_though_no_bond_is_in_the_batch():
    _, atom, network = make_network()
    network.run = "compiled"  # an error unless all cells are compiled
    dag = molecules(["C", "[Na+]"])
    x = random_x(dag)
    x["atom"].requires_grad_()
    got = run(network, dag, x)
    assert network.execution == {"atom": "compiled (native)"}
    want = torch.relu(x["atom"] + atom.from_bonds.bias)
    torch.testing.assert_close(got, want)
    seed = torch.randn_like(want)
    own = torch.autograd.grad(got, [x["atom"], atom.from_bonds.bias], seed)
    torch.testing.assert_close(
        own, torch.autograd.grad(want, [x["atom"], atom.from_bonds.bias], seed)
    )


def test_it_equals_chemprop():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chemprop = pytest.importorskip("chemprop", reason="chemprop is not installed")
    bond, atom, network = make_network()
    dag = molecules()
    source, target, reverse = ends(dag)
    num_atoms, num_bonds = len(dag.nodes_of_type("atom")), len(source)
    of_atoms = torch.randn(num_atoms, 5, dtype=torch.float64)
    of_bonds = torch.randn(num_bonds, 3, dtype=torch.float64)
    theirs = chemprop.nn.BondMessagePassing(d_v=5, d_e=3, d_h=SIZE, depth=DEPTH).double()
    graph = chemprop.data.molgraph.MolGraph(
        of_atoms.numpy(),
        of_bonds.numpy(),
        torch.stack([source, target]).numpy(),
        reverse.numpy(),
    )
    batch = chemprop.data.BatchMolGraph([graph])
    batch.V, batch.E = of_atoms, of_bonds  # it rounds them to single precision
    with torch.no_grad():
        bond.message.weight.copy_(theirs.W_h.weight)
        atom.from_bonds.weight.copy_(theirs.W_o.weight[:, 5:])
        atom.from_bonds.bias.copy_(theirs.W_o.bias)
    x = {
        "bond": theirs.W_i(torch.cat([of_atoms[source], of_bonds], 1)),
        "atom": of_atoms @ theirs.W_o.weight[:, :5].T,
    }
    mine, want = run(network, dag, x), theirs(batch)
    torch.testing.assert_close(mine, want)
    weight = torch.randn_like(want)
    mine_grad = torch.autograd.grad(
        (mine * weight).sum(), [*network.parameters(), theirs.W_i.weight]
    )
    want_grad = torch.autograd.grad(
        (want * weight).sum(),
        [theirs.W_h.weight, theirs.W_o.weight, theirs.W_o.bias, theirs.W_i.weight],
    )
    message, from_bonds, bias, initial = mine_grad
    torch.testing.assert_close(message, want_grad[0])
    torch.testing.assert_close(from_bonds, want_grad[1][:, 5:])
    torch.testing.assert_close(bias, want_grad[2])
    torch.testing.assert_close(initial, want_grad[3])
