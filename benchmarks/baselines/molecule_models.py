"""The models of benchmark molecules as users of PyTorch Geometric and of chemprop write them.

Each takes over the weights of ours, so that all compute the same.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks.baselines.geometric_rounds import (
    Round,
    first_weight,
    geometric_round,
    has_round,
)
from benchmarks.baselines.molecule_tensors import MoleculeTensors, OneHot
from graphfold.batching import Rounds
from graphfold.layers import (
    AttentiveFPFirstCell,
    ColumnEncoder,
    DMPNNAtomCell,
    DMPNNBondCell,
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
        rounds = [item.rounds for item in model.passes if isinstance(item, Rounds)]
        self.rounds, self.turns = rounds[0], range(sum(rounds))
        self.has_rounds_alone = all(isinstance(item, Rounds) for item in model.passes)
        self.is_dmpnn = isinstance(self.cells[0], DMPNNBondCell)
        self.has_geometric = self.is_dmpnn or all(map(has_round, self.cells))
        self.head = copy.deepcopy(cast(nn.Sequential, model.head.layers))


def geometric(parts: Parts, atoms: OneHot, bonds: OneHot) -> nn.Module:
    """The model in PyTorch Geometric."""
    if parts.is_dmpnn:
        return GeometricDMPNN(parts, atoms, bonds)
    return GeometricConvolutions(parts, atoms, bonds)


def compared_weights(model: nn.Module) -> list[Tensor]:
    """The weights of the first messages and of the head, which all models have alike."""
    layers = cast(nn.Module, model.head).modules()
    linear = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
    return [_first_weight(model), *linear]


def _first_weight(model: nn.Module) -> Tensor:
    if isinstance(model, GeometricConvolutions):
        return cast(Round, model.turns[0]).first_weight
    if not isinstance(model, GraphModel):
        return cast(nn.Linear, model.first).weight
    cell = Parts(model).cells[0]
    return cell.message.weight if isinstance(cell, DMPNNBondCell) else first_weight(cell)


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
    """Rounds of a layer of PyTorch Geometric."""

    def __init__(self, parts: Parts, atoms: OneHot, bonds: OneHot) -> None:
        super().__init__()
        self.encoder = atoms.linear(parts.encoders["atom"])
        self.starts_leaky = isinstance(parts.cells[0], AttentiveFPFirstCell)
        made = {cell: geometric_round(cell, bonds) for cell in parts.cells}
        # One cell of all rounds is one layer; each cell of its own is another.
        shared = len(made) == 1
        self.turns = nn.ModuleList(made[parts.cells[0 if shared else n]] for n in parts.turns)
        self.head = parts.head

    def forward(self, batch: MoleculeTensors) -> Tensor:
        """[num_molecules, num_targets]"""
        from torch_geometric.nn import global_mean_pool

        h = self.encoder(batch.atoms)
        h = nn.functional.leaky_relu(h) if self.starts_leaky else h
        edges = torch.stack([batch.source, batch.target])
        for turn in self.turns:
            h = turn(h, edges, batch.bonds)
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


#: Records at a time in chemprop's own command.
BATCH_SIZE = 64


def read_with_chemprop(chunks: Iterable[Sequence[str]]) -> None:
    """Makes chemprop's graphs of molecules, a batch for each chunk of SMILES, and keeps none."""
    chemprop = import_chemprop()
    featurize = chemprop.featurizers.SimpleMoleculeMolGraphFeaturizer()
    for chunk in chunks:
        points = [chemprop.data.MoleculeDatapoint.from_smi(text) for text in chunk]
        chemprop.data.BatchMolGraph([featurize(point.mol) for point in points])


@torch.inference_mode()
def predict_with_chemprop(smiles: Sequence[str], width: int, depth: int, output: Path) -> None:
    """Writes a number of chemprop's D-MPNN, freshly initialised, beside each SMILES."""
    chemprop = import_chemprop()
    nn, data = chemprop.nn, chemprop.data
    passing = nn.BondMessagePassing(d_h=width, depth=depth)
    head = nn.RegressionFFN(input_dim=width, hidden_dim=width)
    model: Any = chemprop.models.MPNN(passing, nn.MeanAggregation(), head).eval()
    points = [data.MoleculeDatapoint.from_smi(text) for text in smiles]
    loader = data.build_dataloader(
        data.MoleculeDataset(points), batch_size=BATCH_SIZE, shuffle=False
    )
    values = torch.cat([model(batch.bmg)[:, 0] for batch in loader]).tolist()
    lines = [f"{text},{value:.7g}\n" for text, value in zip(smiles, values, strict=True)]
    output.write_text("smiles,exp_pred\n" + "".join(lines))
