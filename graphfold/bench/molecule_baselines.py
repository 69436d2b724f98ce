"""The models of benchmark molecules as users of PyTorch Geometric and of chemprop write them.

Each takes over the weights of ours, so that all compute the same.
"""

from __future__ import annotations

import copy
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphfold.batching import Rounds
from graphfold.bench.molecule_tensors import MoleculeTensors, OneHot
from graphfold.layers import (
    ColumnEncoder,
    DMPNNAtomCell,
    DMPNNBondCell,
    GCNCell,
    GINECell,
    GraphModel,
)


class Parts:
    """The modules of one of our models, in the order in which they run.

    Args:
        model: convolutions, then a mean over the atoms, then a head of two layers; passes along
            inputs may follow.

    Attributes:
        has_rounds_alone: whether all of it is message passing, as the other libraries know it.
    """

    def __init__(self, model: GraphModel) -> None:
        self.encoders: dict[str, ColumnEncoder] = dict(model.encoder.encoders.items())  # type: ignore[arg-type]
        self.cells: list[nn.Module] = []
        for by_type in model.network.cells:
            for cells in by_type.values():  # type: ignore[operator]
                self.cells += list(cells)
        self.rounds = sum(item.rounds for item in model.passes[:1] if isinstance(item, Rounds))
        self.has_rounds_alone = all(isinstance(item, Rounds) for item in model.passes)
        self.is_dmpnn = isinstance(self.cells[0], DMPNNBondCell)
        self.head = copy.deepcopy(cast(nn.Sequential, model.head.layers))


def geometric(parts: Parts, atoms: OneHot, bonds: OneHot) -> nn.Module:
    """The model in PyTorch Geometric."""
    if parts.is_dmpnn:
        return GeometricDMPNN(parts, atoms, bonds)
    return GeometricConvolutions(parts, atoms, bonds)


def compared_weights(model: nn.Module) -> list[Tensor]:
    """The weights of the first messages and of the head, which all models have alike."""
    if isinstance(model, GraphModel):
        first: object = _first_layer(Parts(model).cells[0])
    else:
        first = model.first
    layers = cast(nn.Module, model.head).modules()
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return [cast(nn.Linear, layer).weight for layer in (first, *linear)]


def _first_layer(cell: nn.Module) -> nn.Linear:
    if isinstance(cell, DMPNNBondCell):
        return cell.message
    return cell.update.inner if isinstance(cell, GINECell) else cast(GCNCell, cell).linear


class GeometricDMPNN(nn.Module):
    """D-MPNN in PyTorch Geometric: the sum over the bonds of an atom, less the way back."""

    def __init__(self, parts: Parts, atoms: OneHot, bonds: OneHot) -> None:
        super().__init__()
        bond, atom = parts.cells
        assert isinstance(bond, DMPNNBondCell)
        assert isinstance(atom, DMPNNAtomCell)
        of_bond = parts.encoders["bond"]
        self.initial = _beside(atoms.weight(of_bond, "source_"), bonds.weight(of_bond))
        self.message = copy.deepcopy(bond.message)
        from_bonds = atom.from_bonds
        self.last = _beside(
            atoms.weight(parts.encoders["atom"]), from_bonds.weight.detach(), from_bonds.bias
        )
        self.first, self.head = self.message, parts.head
        self.rounds = parts.rounds

    def forward(self, batch: MoleculeTensors) -> Tensor:
        """[num_molecules, num_targets]"""
        from torch_geometric.nn import global_mean_pool
        from torch_geometric.utils import scatter

        num_atoms = len(batch.atoms)
        start = self.initial(torch.cat([batch.atoms[batch.source], batch.bonds], 1))
        h = torch.relu(start)
        for _ in range(self.rounds):
            arrived = scatter(h, batch.target, 0, num_atoms, "sum")
            h = torch.relu(start + self.message(arrived[batch.source] - h[batch.reverse]))
        arrived = scatter(h, batch.target, 0, num_atoms, "sum")
        h = torch.relu(self.last(torch.cat([batch.atoms, arrived], 1)))
        raw: Tensor = self.head(global_mean_pool(h, batch.molecule, batch.num_molecules))
        return raw


class GeometricConvolutions(nn.Module):
    """Layers of `GCNConv`, or of `GINEConv`, as PyTorch Geometric has them."""

    def __init__(self, parts: Parts, atoms: OneHot, bonds: OneHot) -> None:
        super().__init__()
        self.encoder = atoms.linear(parts.encoders["atom"])
        self.convolutions = nn.ModuleList(_convolution(cell) for cell in parts.cells)
        self.edge_encoders = nn.ModuleList(
            bonds.linear(cell.edge_encoder) for cell in parts.cells if isinstance(cell, GINECell)
        )
        self.head = parts.head

    @property
    def first(self) -> nn.Module:
        """The layer of the first messages."""
        convolution = self.convolutions[0]
        return cast(nn.Module, convolution.nn[0] if self.edge_encoders else convolution.lin)  # type: ignore[index]

    def forward(self, batch: MoleculeTensors) -> Tensor:
        """[num_molecules, num_targets]"""
        from torch_geometric.nn import global_mean_pool

        h = self.encoder(batch.atoms)
        edges = torch.stack([batch.source, batch.target])
        for number, convolution in enumerate(self.convolutions):
            more = [self.edge_encoders[number](batch.bonds)] if self.edge_encoders else []
            h = torch.relu(convolution(h, edges, *more))
        raw: Tensor = self.head(global_mean_pool(h, batch.molecule, batch.num_molecules))
        return raw


class Chemprop(nn.Module):
    """D-MPNN of chemprop: its message passing, its mean and its predictor."""

    def __init__(self, parts: Parts, atoms: OneHot, bonds: OneHot) -> None:
        super().__init__()
        chemprop = import_chemprop()
        twin = GeometricDMPNN(parts, atoms, bonds)
        width = twin.message.out_features
        depth = twin.rounds + 1
        self.passing = chemprop.nn.BondMessagePassing(atoms.size, bonds.size, width, depth=depth)
        self.pooling = chemprop.nn.MeanAggregation()
        hidden, last = (layer for layer in parts.head if isinstance(layer, nn.Linear))
        sizes = last.out_features, width, hidden.out_features
        self.predictor = chemprop.nn.RegressionFFN(*sizes)
        self.first, self.head = self.passing.W_h, self.predictor
        mine = [twin.initial, twin.message, twin.last, hidden, last]
        theirs = [self.passing.W_i, self.passing.W_h, self.passing.W_o]
        theirs += [layer for layer in self.predictor.modules() if isinstance(layer, nn.Linear)]
        for source, target in zip(mine, theirs, strict=True):
            target.load_state_dict(source.state_dict())

    def forward(self, graph: Any) -> Tensor:
        """[num_molecules, num_targets] of a `BatchMolGraph`"""
        h = self.pooling(self.passing(graph), graph.batch)
        raw: Tensor = self.predictor.train_step(h)
        return raw


def chemprop_batch(batch: MoleculeTensors) -> Any:
    """The `BatchMolGraph` of a batch."""
    chemprop = import_chemprop()
    graph = chemprop.data.molgraph.MolGraph(
        batch.atoms.cpu().numpy(),
        batch.bonds.cpu().numpy(),
        torch.stack([batch.source, batch.target]).cpu().numpy(),
        batch.reverse.cpu().numpy(),
    )
    found = chemprop.data.BatchMolGraph([graph])
    found.V, found.E = found.V.to(batch.atoms), found.E.to(batch.bonds)  # in float32 until here
    found.batch = batch.molecule.cpu()
    found.to(batch.atoms.device)
    return found


def has_geometric() -> bool:
    """PyTorch Geometric is installed."""
    return find_spec("torch_geometric") is not None


def has_chemprop() -> bool:
    """chemprop is installed."""
    return find_spec("chemprop") is not None


def import_chemprop() -> Any:
    """The package, without the warnings of what it imports; graphfold does not ask for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("chemprop")


def _beside(left: Tensor, right: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer over two kinds of columns side by side."""
    weight = torch.cat([left, right], 1)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight.data.copy_(weight)
    if bias is not None:
        layer.bias.data.copy_(bias)
    return layer


def _convolution(cell: nn.Module) -> nn.Module:
    from torch_geometric.nn import GCNConv, GINEConv

    if isinstance(cell, GINECell):
        size = cell.update.inner.in_features
        convolution = GINEConv(nn.Sequential(_linear(size), nn.ReLU(), _linear(size)))
        # Only now: it draws the weights of what it is given.
        convolution.nn[0].load_state_dict(cell.update.inner.state_dict())
        convolution.nn[2].load_state_dict(cell.update.outer.state_dict())
    else:
        assert isinstance(cell, GCNCell)
        convolution = GCNConv(cell.linear.in_features, cell.linear.out_features)
        convolution.lin.weight.data.copy_(cell.linear.weight)
        convolution.bias.data.copy_(cell.linear.bias)
    return cast(nn.Module, convolution)


def _linear(size: int) -> nn.Linear:
    return nn.Linear(size, size)
