"""Batch normalisation in rounds of message passing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from layers.molecule_graphs import BOND, SCHEMA, SIZE, atom_features, molecules, run
from processes import START_METHOD
from strategies import chain
from torch import nn
from torch.multiprocessing import start_processes
from torch.nn import functional

from graphfold.dag import GraphBuilder, collate, split
from graphfold.layers import (
    FingerprintCell,
    GATCell,
    GATv2Cell,
    GCNCell,
    GINCell,
    GINECell,
    PNACell,
)
from graphfold.layers.normalisation import normalise

CELLS = [
    lambda: GCNCell(SIZE, norm="batch"),
    lambda: GINCell(SIZE, norm="batch"),
    lambda: FingerprintCell(SIZE, 3, norm="batch"),
]


def test_it_normalises_over_all_atoms_of_the_batch():
    dag = chain(SCHEMA, "atom", "atom", 5)
    cell, x = GCNCell(SIZE, activation="none", norm="batch"), atom_features(dag)
    plain = GCNCell(SIZE, activation="none")  # whose bias changes nothing
    plain.linear.load_state_dict(cell.linear.state_dict(), strict=False)
    want = functional.batch_norm(run(plain, dag, x)["h"], None, None, training=True)
    torch.testing.assert_close(run(cell, dag, x)["h"], want)
    assert cell.after_convolution.norm.num_batches_tracked == 1


@pytest.mark.parametrize("make", CELLS)
def test_a_single_atom_is_normalised_by_the_running_statistics(make):
    builder = GraphBuilder(SCHEMA)
    builder.output(builder.node("atom"))
    builder.finish()
    dag, cell = builder.build(), make()
    x = atom_features(dag)
    trained = run(cell, dag, x)["h"]
    torch.testing.assert_close(trained, run(cell.eval(), dag, x)["h"])


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=5)
@given(dag=molecules)
def test_in_evaluation_the_rest_of_the_batch_does_not_matter(make, dag):
    cell, x = make().train(), atom_features(dag)
    run(cell, dag, x)  # moves the running statistics
    cell.eval()
    together = run(cell, dag, x)["h"]
    for graph, alone in enumerate(split(dag)):
        mine = dag.batch == graph
        torch.testing.assert_close(run(cell, alone, x[mine])["h"], together[mine])


#: Every cell with a norm.
NORMALISED = {
    "gcn": lambda norm: GCNCell(SIZE, norm=norm),
    "gin": lambda norm: GINCell(SIZE, norm=norm),
    "gine": lambda norm: GINECell(SIZE, BOND, norm=norm),
    "gat": lambda norm: GATCell(SIZE, BOND, heads=2, norm=norm),
    "gatv2": lambda norm: GATv2Cell(SIZE, BOND, heads=2, norm=norm),
    "pna": lambda norm: PNACell(SIZE, 1.2, BOND, norm=norm),
    "fingerprint": lambda norm: FingerprintCell(SIZE, 3, BOND, norm=norm),
    "fingerprint of one weight": lambda norm: FingerprintCell(SIZE, 3, max_degree=0, norm=norm),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_no_weight_has_a_gradient_of_rounding_errors_alone(name):
    """A bias before batch normalisation has such a gradient, and Adam makes full steps of it."""
    dag = collate([chain(SCHEMA, "atom", "atom", length) for length in (2, 5, 3)])
    for norm in ("batch", "layer", None):
        torch.manual_seed(0)
        cell = NORMALISED[name](norm).double()
        states = run(cell, dag, atom_features(dag).double())
        loss = sum((state * torch.randn_like(state)).sum() for state in states.values())
        loss.backward()
        for weight, parameter in cell.named_parameters():
            largest = parameter.grad.abs().max()  # 0 where all bonds are of kind 0
            assert largest > 1e-6 or largest == 0, (norm, weight)


def test_layer_normalisation_looks_at_one_row():
    dag = chain(SCHEMA, "atom", "atom", 5)
    cell, x = GCNCell(SIZE, activation="none", norm="layer"), atom_features(dag)
    plain = GCNCell(SIZE, activation="none")
    plain.linear.load_state_dict(cell.linear.state_dict())
    want = functional.layer_norm(run(plain, dag, x)["h"], (SIZE,))
    torch.testing.assert_close(run(cell, dag, x)["h"], want)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_two_processes_normalise_like_one(tmp_path):
    torch.manual_seed(0)
    rows = torch.randn(7, SIZE, dtype=torch.float64)
    weights = torch.linspace(-1, 1, rows.numel(), dtype=torch.float64).view_as(rows)
    torch.save((rows, weights), tmp_path / "rows.pt")
    start_processes(_normalise_share, (tmp_path,), nprocs=2, start_method=START_METHOD)
    norm = nn.BatchNorm1d(SIZE).double()
    rows.requires_grad_()
    out = norm(rows)
    (out * weights).sum().backward()
    shares = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    torch.testing.assert_close(torch.cat([share["out"] for share in shares]), out.detach())
    torch.testing.assert_close(torch.cat([share["grad"] for share in shares]), rows.grad)
    for share in shares:
        torch.testing.assert_close(share["state"], dict(norm.state_dict()))


def _normalise_share(rank: int, folder: Path) -> None:
    """Normalises three of the rows in one process and four in the other."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    rows, weights = torch.load(folder / "rows.pt")
    share = slice(0, 3) if rank == 0 else slice(3, 7)
    own = rows[share].clone().requires_grad_()
    norm = nn.BatchNorm1d(SIZE).double()
    out = normalise(norm, own)
    (out * weights[share]).sum().backward()
    result = {"out": out.detach(), "grad": own.grad, "state": dict(norm.state_dict())}
    torch.save(result, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()
