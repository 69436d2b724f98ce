"""Message passing over molecules, beside PyTorch Geometric and chemprop.

Lipophilicity with three models of one width, named by the field `shape`: `dmpnn`, the model of the
experiment lipophilicity_dmpnn, Yang et al. (2019), https://arxiv.org/abs/1904.01561, of depth 3;
`gine` and `gcn`, three layers of each. All end in a mean over the atoms and a head of two layers. A
training step is forward, squared error, backward and a step of torch's fused Adam, for all variants
alike; the batches, the first of an epoch, are made beforehand for every variant in the form that it
takes. Features are one-hot for the others, of the codes that occur. Nodes with equal surroundings
are equal nodes. Variants of one run, on the same weights:

- `graphfold`: as in `graphfold train`, with native code where there is a C compiler; equal nodes
  once;
- `untraced`: the same engine and plan with the cells' own code (model.fuse=false); equal nodes
  once;
- `every_node`: graphfold with a plan that shares nothing; every node;
- `pyg`: the layers of PyTorch Geometric (D-MPNN: with its `scatter`); every node;
- `chemprop`: its message passing and predictor (`dmpnn` only), where it is installed:
  `pip install -c constraints.txt chemprop`; every node;
- `product_floor`: the matrix products of graphfold's own plan alone; equal nodes once.

    graphfold bench molecules --batch-size 64,512 --hidden-size 300
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from graphfold.batching import Batch, Rounds, build_schedule
from graphfold.bench.engine_variants import EVERY_NODE, fusions
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import Row, Work, measure
from graphfold.bench.molecule_baselines import (
    Chemprop,
    Parts,
    chemprop_batch,
    geometric,
    has_chemprop,
    has_geometric,
    message_weight,
)
from graphfold.bench.molecule_tensors import OneHot, atom_columns, bond_columns, molecule_tensors
from graphfold.bench.products import Product, ProductFloor
from graphfold.layers import GraphModel
from graphfold.training.loop.optimizer import build_optimizer

BATCH_SIZES = (64, 512)
HIDDEN_SIZES = (300,)

#: Batches that a call of a variant goes through.
NUM_BATCHES = 4

_CONVOLUTIONS = (
    "data=lipophilicity",
    "optimizer=adam",
    "model.cells.0._every_.norm=null",
    "model.readout._target_=graphfold.layers.MeanReadout",
    "+model.head.hidden_size=${model.hidden_size}",
)

#: Shape -> what makes the experiment.
SHAPES: Mapping[str, Sequence[str]] = {
    "dmpnn": ("experiment=lipophilicity_dmpnn",),
    "gine": ("model=gin", *_CONVOLUTIONS),
    "gcn": ("model=gcn", *_CONVOLUTIONS, "model.cells.0._every_.residual=false"),
}


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every model, width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    for shape, own in SHAPES.items():
        data = load_data([*own, *overrides])
        for hidden_size in hidden_sizes or HIDDEN_SIZES:
            for batch_size in batch_sizes or BATCH_SIZES:
                experiment = load_sized(own, hidden_size, batch_size, overrides, data)
                setting = Row("molecules", "graphfold", shape, batch_size, hidden_size, "", threads)
                yield from _variant_rows(setting, experiment)


class Variant(NamedTuple):
    """A model that takes batches in a form of its own."""

    model: nn.Module
    batches: Sequence[Any]
    targets: Sequence[Tensor]  # [num_molecules, num_targets] of each batch
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Optimizer

    def results(self) -> list[Tensor]:
        """The outputs of the first batch, and a gradient that comes from far behind."""
        raw = self.model(self.batches[0])
        loss = self.loss(raw, self.targets[0])
        return [raw, *torch.autograd.grad(loss, [message_weight(self.model)])]

    def work(self, phase: str) -> Work:
        """Going through all batches."""
        self.model.train(phase == "train")
        return Work(self._train if phase == "train" else self._infer, sum(map(len, self.targets)))

    def _train(self) -> None:
        for batch, targets in zip(self.batches, self.targets, strict=True):
            self.loss(self.model(batch), targets).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _infer(self) -> None:
        with torch.no_grad():
            for batch in self.batches:
                self.model(batch)


def _variant_rows(setting: Row, experiment: Experiment) -> Iterator[Row]:
    variants = _variants(experiment, setting.shape)
    ours = variants["graphfold"]
    for name, variant in variants.items():
        require_equal(name, variant.results(), ours.results())
    floors = [product_floor(experiment.model, batch) for batch in ours.batches]
    for phase in ("train", "inference"):
        works = {name: variant.work(phase) for name, variant in variants.items()}
        floor = Work(partial(_run_products, floors, phase), works["graphfold"].examples)
        yield from measure(replace(setting, phase=phase), {**works, "product_floor": floor})


def _variants(experiment: Experiment, shape: str) -> dict[str, Variant]:
    """All variants that can run here, on copies of one model's weights."""
    model = experiment.model
    dags = [batch.dag for batch in experiment.batches(NUM_BATCHES)]
    targets = [model.head.target_rows(dag) for dag in dags]
    adam = partial(torch.optim.Adam, lr=experiment.optimizer.param_groups[0]["lr"])

    def variant(module: nn.Module, batches: Sequence[Any]) -> Variant:
        optimizer = build_optimizer(adam, list(module.parameters()))
        return Variant(module, batches, targets, partial(_loss, model), optimizer)

    found = {}
    for name, share, fuse in (
        *((name, True, fuse) for name, fuse in fusions(model.network).items()),
        (EVERY_NODE, False, model.network.fuse),
    ):
        plans = [build_schedule(dag, model.passes, share=share) for dag in dags]
        found[name] = variant(copy.deepcopy(model), list(map(Batch, dags, plans)))
        found[name].model.network.fuse = fuse  # type: ignore[union-attr]
    atoms = OneHot(list(map(atom_columns, dags)))
    bonds = OneHot(list(map(bond_columns, dags)))
    tensors = [molecule_tensors(dag, atoms, bonds) for dag in dags]
    if has_geometric():
        found["pyg"] = variant(geometric(Parts(model), atoms, bonds), tensors)
    if shape == "dmpnn" and has_chemprop():
        graphs = list(map(chemprop_batch, tensors))
        found["chemprop"] = variant(Chemprop(Parts(model), atoms, bonds), graphs)
    return found


def _loss(model: GraphModel, raw: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error of standardised targets."""
    return model.head.losses(raw, targets).mean()


def product_floor(model: GraphModel, batch: Batch) -> ProductFloor:
    """Every linear layer of a cell over the rows of each round, and those of the head."""
    calls: dict[nn.Linear, list[int]] = {}
    passes = zip(model.passes, model.network.cells, batch.schedule.unrolled, strict=True)
    for item, cells, unrolled in passes:
        assert isinstance(item, Rounds)
        assert unrolled is not None
        sizes = unrolled.size
        for turn in range(item.rounds):
            for name, own in cells.items():  # type: ignore[operator]
                rows = sizes[turn + 1][model.network.schema.type_index(name)]
                for layer in _linear_layers(own[min(turn, len(own) - 1)]):
                    calls.setdefault(layer, []).append(rows)
    for layer in _linear_layers(model.head):
        calls[layer] = [batch.num_graphs]
    return ProductFloor([Product(layer.weight, rows) for layer, rows in calls.items()])


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def _run_products(floors: Sequence[ProductFloor], phase: str) -> None:
    for floor in floors:
        floor.run(phase)
