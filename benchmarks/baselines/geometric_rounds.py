"""Rounds of message passing as PyTorch Geometric has them, with the weights of our cells.

Each is called with states [num_atoms, width], edges [2, num_edges] and one-hot bonds
[num_edges, num_features].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from benchmarks.baselines.molecule_tensors import OneHot
from graphfold.layers import (
    AttentiveFPCell,
    AttentiveFPFirstCell,
    GATCell,
    GATv2Cell,
    GCNCell,
    GGNNCell,
    GINECell,
    MPNNCell,
    PNACell,
    WeaveAtomCell,
)


class Round(nn.Module):
    """One round: a layer, then what follows it.

    Args:
        layer: of PyTorch Geometric.
        sees_bonds: whether the layer is called with bonds.
        of_bonds: what it is called with instead of the bonds themselves.
        gru: what updates the state, if anything does.
        before: the activation of the message of a unit.
        after: the activation of the new state.
    """

    def __init__(
        self,
        layer: nn.Module,
        sees_bonds: bool = True,
        of_bonds: Callable[[Tensor], Tensor] | None = None,
        gru: nn.GRUCell | None = None,
        before: Callable[[Tensor], Tensor] | None = None,
        after: Callable[[Tensor], Tensor] | None = torch.relu,
    ) -> None:
        super().__init__()
        self.layer, self.gru = layer, gru
        self.first = ""  # the weight whose gradient is compared
        self.sees_bonds, self.of_bonds = sees_bonds, of_bonds
        self.before, self.after = before, after

    @property
    def first_weight(self) -> Tensor:
        """The weight whose gradient is compared."""
        return cast(Tensor, attrgetter(self.first)(self))

    def forward(self, h: Tensor, edges: Tensor, bonds: Tensor) -> Tensor:
        """[num_atoms, width] the new states."""
        given = [bonds if self.of_bonds is None else self.of_bonds(bonds)]
        message = self.layer(h, edges, *(given if self.sees_bonds else []))
        message = message if self.before is None else self.before(message)
        new = message if self.gru is None else self.gru(message, h)
        return new if self.after is None else self.after(new)


def geometric_round(cell: nn.Module, bonds: OneHot) -> Round:
    """The round of a cell that `has_round`; `bonds` is what bonds become."""
    twin = _TWINS[type(cell)]
    assert twin.make is not None
    made = twin.make(cell, bonds)
    made.first = twin.theirs
    return made


def has_round(cell: nn.Module) -> bool:
    """PyTorch Geometric has an equal one."""
    return type(cell) in _TWINS and _TWINS[type(cell)].make is not None


def first_weight(cell: nn.Module) -> Tensor:
    """The weight of a cell that is `Round.first_weight`."""
    return cast(Tensor, attrgetter(_TWINS[type(cell)].ours)(cell))


def _gcn(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import GCNConv

    layer = GCNConv(cell.width, cell.width)
    _give(layer.lin.weight, cell.linear.weight)
    _give(layer.bias, cell.linear.bias)
    return Round(layer, sees_bonds=False)


def _gine(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import GINEConv

    size = cell.width
    layer = GINEConv(nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size)))
    # Only now: it draws the weights of what it is given.
    layer.nn[0].load_state_dict(cell.update.inner.state_dict())
    layer.nn[2].load_state_dict(cell.update.outer.state_dict())
    return Round(layer, of_bonds=bonds.linear(cell.edge_encoder))


def _gat(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import GATConv

    heads, width = cell.head_shape
    layer = GATConv(cell.width, width, heads, edge_dim=bonds.size)
    layer.lin.load_state_dict(cell.linear.state_dict())
    _give(layer.att_src, cell.of_source)
    _give(layer.att_dst, cell.of_target)
    _give(layer.att_edge, cell.of_edge)
    _give(layer.lin_edge.weight, bonds.weight(cell.edge_encoder))
    _give(layer.bias, cell.bias)
    return Round(layer)


def _gatv2(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import GATv2Conv

    heads, width = cell.head_shape
    layer = GATv2Conv(cell.width, width, heads, edge_dim=bonds.size)
    layer.lin_l.load_state_dict(cell.source.state_dict())
    layer.lin_r.load_state_dict(cell.target.state_dict())
    _give(layer.att, cell.attention)
    _give(layer.lin_edge.weight, bonds.weight(cell.edge_encoder))
    _give(layer.bias, cell.bias)
    return Round(layer)


def _pna(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import PNAConv

    aggregators = ["mean", "min", "max", "std"]
    scalers = ["identity", "amplification", "attenuation"]
    size = cell.width
    layer = PNAConv(size, size, aggregators, scalers, torch.ones(2), edge_dim=bonds.size)
    layer.aggr_module.avg_deg_log = torch.tensor([cell.mean_log_degree], dtype=torch.float64)
    (before,), (after,) = layer.pre_nns[0], layer.post_nns[0]
    own = torch.eye(size)
    weight = torch.cat([cell.target.weight, cell.source.weight, own.to(cell.target.weight)], 1)
    _give(before.weight, weight)
    _give(before.bias, cell.target.bias)
    _give(layer.edge_encoder.weight, bonds.weight(cell.edge_encoder))
    layer.edge_encoder.bias.data.zero_()
    after.load_state_dict(cell.inner.state_dict())
    layer.lin.load_state_dict(cell.outer.state_dict())
    return Round(layer)


def _ggnn(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import RGCNConv

    codes, start = bonds.codes[cell.kind], 0
    for name, found in bonds.codes.items():
        if name == cell.kind:
            break
        start += len(found)
    size = cell.width
    layer = RGCNConv(size, size, len(codes), aggr="add", root_weight=False)
    by_kind = cell.message.weight.detach().view(size, -1, size).permute(1, 2, 0)
    _give(layer.weight, by_kind[codes])
    _give(layer.bias, cell.message.bias)
    gru = _copy(cell.gru)

    def kind(bonds: Tensor) -> Tensor:
        return bonds[:, start : start + len(codes)].argmax(1)

    return Round(layer, of_bonds=kind, gru=gru, after=None)


def _mpnn(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import NNConv

    size, hidden = cell.width, cell.matrix.in_features
    network = nn.Sequential(bonds.linear(cell.edge_encoder), nn.ReLU(), nn.Linear(hidden, size**2))
    layer = NNConv(size, size, network, aggr="add", root_weight=False, bias=False)
    matrix = cell.matrix.weight.detach().view(size, size, hidden).transpose(0, 1)
    encoder = nn.Linear(bonds.size, hidden)
    _give(encoder.weight, bonds.weight(cell.edge_encoder))
    _give(encoder.bias, cell.edge_bias)
    layer.nn[0] = encoder
    _give(layer.nn[2].weight, matrix)  # theirs multiplies from the right
    _give(layer.nn[2].bias, cell.matrix.bias.detach().view(size, size).T)
    return Round(layer, gru=_copy(cell.gru), after=None)


def _attentive_first(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn.models.attentive_fp import GATEConv

    layer = GATEConv(cell.width, cell.width, bonds.size)
    _give(layer.lin1.weight, torch.cat([cell.neighbour.weight, bonds.weight(cell.edge_encoder)], 1))
    _give(layer.lin2.weight, cell.linear.weight)
    _give(layer.bias, cell.linear.bias)
    _give(layer.att_l, cell.of_source.weight)
    _give(layer.att_r, cell.of_target.weight)
    return Round(layer, gru=_copy(cell.gru), before=nn.functional.elu)


def _attentive(cell: Any, bonds: OneHot) -> Round:
    from torch_geometric.nn import GATConv

    layer = GATConv(cell.width, cell.width, add_self_loops=False, negative_slope=0.01)
    _give(layer.lin.weight, cell.linear.weight)
    _give(layer.bias, cell.linear.bias)
    _give(layer.att_src, cell.of_source.weight)
    _give(layer.att_dst, cell.of_target.weight)
    return Round(layer, sees_bonds=False, gru=_copy(cell.gru), before=nn.functional.elu)


def _copy(gru: nn.GRUCell) -> nn.GRUCell:
    made = nn.GRUCell(gru.input_size, gru.hidden_size).to(gru.weight_ih)
    made.load_state_dict(gru.state_dict())
    return made


def _give(theirs: Tensor, ours: Tensor) -> None:
    theirs.data = ours.detach().reshape(theirs.shape).clone()


class _Twin(NamedTuple):
    make: Callable[[Any, OneHot], Round] | None  # None where PyTorch Geometric has no equal
    ours: str  # the weight of the cell whose gradient is compared
    theirs: str = ""  # and that of the round


_TWINS: Mapping[type[nn.Module], _Twin] = {
    AttentiveFPCell: _Twin(_attentive, "linear.weight", "layer.lin.weight"),
    AttentiveFPFirstCell: _Twin(_attentive_first, "linear.weight", "layer.lin2.weight"),
    GATCell: _Twin(_gat, "linear.weight", "layer.lin.weight"),
    GATv2Cell: _Twin(_gatv2, "source.weight", "layer.lin_l.weight"),
    GCNCell: _Twin(_gcn, "linear.weight", "layer.lin.weight"),
    GGNNCell: _Twin(_ggnn, "gru.weight_hh", "gru.weight_hh"),
    GINECell: _Twin(_gine, "update.inner.weight", "layer.nn.0.weight"),
    MPNNCell: _Twin(_mpnn, "gru.weight_hh", "gru.weight_hh"),
    PNACell: _Twin(_pna, "outer.weight", "layer.lin.weight"),
    WeaveAtomCell: _Twin(None, "both.weight"),
}
