"""Convolutions and readouts against PyTorch Geometric, with equal weights, on 100 molecules."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from layers.molecules.geometric_molecules import (
    SIZE,
    assert_equal,
    bonds,
    edge_index,
    features,
    molecules,
    randomise,
)
from torch import Tensor, nn

from graphfold.batching import Batch, Network, Rounds, build_schedule
from graphfold.layers import (
    AttentiveFPCell,
    AttentiveFPFirstCell,
    AttentiveReadout,
    GGNNCell,
    GINCell,
    GINECell,
    MPNNCell,
    PNACell,
    Set2SetReadout,
)

geometric = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is not installed")
BOND = molecules().schema.relation("bond").features


def made(cell: Any) -> Any:
    """In float64, with random weights."""
    cell = cell.double()
    randomise(cell)
    return cell


def copy(*pairs: tuple[nn.Module | Tensor, nn.Module | Tensor]) -> None:
    """Gives theirs, the first of each pair, the weights of ours."""
    for theirs, ours in pairs:
        if isinstance(ours, Tensor):
            theirs.data = ours.detach().reshape(theirs.shape).clone()
        else:
            theirs.load_state_dict(ours.state_dict())


def test_gin():
    cell = made(GINCell(SIZE, learn_epsilon=True))
    mlp = nn.Sequential(cell.update.inner, nn.ReLU(), cell.update.outer)
    layer = geometric.GINConv(mlp, train_eps=True).double()
    randomise(cell)  # the layer has drawn anew
    copy((layer.eps, cell.update.epsilon))
    assert_equal(cell, lambda h: torch.relu(layer(h, edge_index())))


def test_gine():
    cell = made(GINECell(SIZE, BOND))
    hot, weight = bonds(cell.edge_encoder)
    mlp = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))
    layer = geometric.GINEConv(mlp, edge_dim=hot.shape[1]).double()
    copy((mlp[0], cell.update.inner), (mlp[2], cell.update.outer), (layer.lin.weight, weight))
    layer.lin.bias.data.zero_()
    weights = [(cell.update.inner.weight, mlp[0].weight)]
    assert_equal(cell, lambda h: torch.relu(layer(h, edge_index(), hot)), weights=weights)


def test_pna():
    degree = molecules().relations["bond"].ptr.diff()
    mean = float(torch.log(degree.double() + 1).mean())
    cell = made(PNACell(SIZE, mean, BOND))
    hot, weight = bonds(cell.edge_encoder)
    aggregators = ["mean", "min", "max", "std"]
    scalers = ["identity", "amplification", "attenuation"]
    counts = torch.bincount(degree)
    layer = geometric.PNAConv(SIZE, SIZE, aggregators, scalers, counts, edge_dim=hot.shape[1])
    layer = layer.double()
    # Kept in single precision otherwise.
    layer.aggr_module.avg_deg_log.fill_(layer.aggr_module.init_avg_deg_log)
    assert math.isclose(layer.aggr_module.init_avg_deg_log, mean, rel_tol=1e-6)
    cell.mean_log_degree = layer.aggr_module.init_avg_deg_log
    (before,), (after,) = layer.pre_nns[0], layer.post_nns[0]
    own = torch.eye(SIZE, dtype=torch.float64)
    copy(
        (before.weight, torch.cat([cell.target.weight, cell.source.weight, own], 1)),
        (before.bias, cell.target.bias),
        (layer.edge_encoder.weight, weight),
        (after, cell.inner),
        (layer.lin, cell.outer),
    )
    layer.edge_encoder.bias.data.zero_()
    weights = [(cell.inner.weight, after.weight), (cell.outer.bias, layer.lin.bias)]
    assert_equal(cell, lambda h: torch.relu(layer(h, edge_index(), hot)), weights=weights)


def test_ggnn_with_one_kind():
    cell = made(GGNNCell(SIZE, BOND))
    layer = geometric.GatedGraphConv(SIZE, 1).double()
    weight = cell.message.weight.detach()[:, :SIZE]
    cell.message.weight.data = weight.repeat(1, cell.num_kinds)
    cell.message.bias.data.zero_()
    copy((layer.weight, weight.T), (layer.rnn, cell.gru))
    assert_equal(cell, lambda h: layer(h, edge_index()))


def test_ggnn_with_a_weight_for_each_order_of_bonds():
    cell = made(GGNNCell(SIZE, BOND, "order"))
    order = molecules().columns["relation:bond"]["order"].long()
    source, target = edge_index()
    by_kind = cell.message.weight.view(SIZE, -1, SIZE).transpose(0, 1)

    def round_of(h: Tensor) -> Tensor:
        messages = torch.einsum("eij,ej->ei", by_kind[order], h[source])
        total = torch.zeros_like(h).index_add(0, target, messages) + cell.message.bias
        return cell.gru(total, h)

    assert_equal(cell, round_of, weights=[(cell.gru.weight_hh, cell.gru.weight_hh)])


def test_mpnn():
    cell = made(MPNNCell(SIZE, BOND, 5))
    hot, weight = bonds(cell.edge_encoder)
    network = nn.Sequential(nn.Linear(hot.shape[1], 5), nn.ReLU(), nn.Linear(5, SIZE * SIZE))
    layer = geometric.NNConv(SIZE, SIZE, network, root_weight=False, bias=False).double()
    # Theirs multiplies from the right.
    matrix = cell.matrix.weight.detach().view(SIZE, SIZE, 5).transpose(0, 1)
    bias = cell.matrix.bias.detach().view(SIZE, SIZE).T
    copy((network[0].weight, weight), (network[0].bias, cell.edge_bias))
    copy((network[2].weight, matrix), (network[2].bias, bias))
    assert_equal(
        cell,
        lambda h: cell.gru(layer(h, edge_index(), hot), h),
        weights=[(cell.edge_bias, network[0].bias)],
    )


def test_set2set():
    readout = made(Set2SetReadout(SIZE, steps=4))
    theirs = geometric.Set2Set(SIZE, 4).double()
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    copy(*((getattr(theirs.lstm, f"{n}_l0"), getattr(readout.lstm, n)) for n in names))
    rows, dag = features(), molecules()
    torch.testing.assert_close(readout.reduce(rows, dag.node_ptr), theirs(rows, dag.batch))


@pytest.mark.parametrize("rounds", [1, 3])
def test_attentive_fp(rounds: int):
    first, later = made(AttentiveFPFirstCell(SIZE, BOND)), made(AttentiveFPCell(SIZE))
    readout, head = made(AttentiveReadout(SIZE, steps=3)), made(nn.Linear(SIZE, 2))
    hot, weight = bonds(first.edge_encoder)
    theirs = geometric.models.AttentiveFP(SIZE, SIZE, 2, hot.shape[1], rounds, 3).double()
    copy((theirs.lin1.weight, torch.eye(SIZE, dtype=torch.float64)), (theirs.lin2, head))
    theirs.lin1.bias.data.zero_()
    gate = theirs.gate_conv
    copy(
        (gate.lin1.weight, torch.cat([first.neighbour.weight, weight], 1)),
        (gate.lin2.weight, first.linear.weight),
        (gate.bias, first.linear.bias),
        (gate.att_l, first.of_source.weight),
        (gate.att_r, first.of_target.weight),
        (theirs.gru, first.gru),
    )
    for conv, gru in zip(theirs.atom_convs, theirs.atom_grus, strict=True):
        copy((conv.lin.weight, later.linear.weight), (conv.bias, later.linear.bias))
        copy((conv.att_src, later.of_source.weight), (conv.att_dst, later.of_target.weight))
        copy((gru, later.gru))
    pool = theirs.mol_conv
    copy(
        (pool.lin, readout.linear),
        (pool.att_src, readout.of_node.weight),
        (pool.att_dst, readout.of_graph.weight),
        (pool.bias, readout.bias),
        (theirs.mol_gru, readout.gru),
    )
    dag, passes = molecules(), [Rounds("bond", 1)]
    if rounds > 1:
        passes.append(Rounds("bond", rounds - 1))
    network = Network(
        dag.schema, *zip(passes, [{"atom": first}, {"atom": later}][: len(passes)], strict=True)
    )
    x = features()
    states = network.double()(Batch(dag, build_schedule(dag, passes)), {"atom": x})
    assert set(network.execution.values()) == {"compiled (native)"}
    got = head(readout(states, dag))
    want = theirs(x, edge_index(), hot, dag.batch)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (got, want)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)
