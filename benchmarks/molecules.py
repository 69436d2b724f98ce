"""How fast are graph networks over molecules, beside PyTorch Geometric and chemprop?

Lipophilicity with models named by the field `shape`: `dmpnn`, the model of the experiment
lipophilicity_dmpnn, Yang et al. (2019), https://arxiv.org/abs/1904.01561, of depth 3; `gine` and
`gcn`, three layers of each; the other models of configs/model with the rounds that they have there,
`mpnn` of width 64, since it makes a matrix for each edge. `fragments` has rings and paths
and their tree above GINE. All but that one end in a mean over the atoms, and all in a
head of two layers. A training step is forward, squared error, backward and a step of torch's fused
Adam, for all variants alike; the batches, the first of an epoch, are made beforehand for every
variant in the form that it takes. The others get one-hot features of the codes that occur. Nodes
with equal surroundings are equal nodes. Variants, on the same weights:

- `graphfold`: as in `graphfold train`, with the cells compiled where there is a C compiler;
- `untraced`: the same engine and plan with the cells' own code (`model.run=eager`);
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `every_node`: graphfold with a plan that shares nothing;
- `pyg`: the layers of PyTorch Geometric (D-MPNN: with its `scatter`), where it is installed; not
  of `weave`, which it does not have;
- `chemprop`: its message passing and predictor (`dmpnn` only), where it is installed:
  `pip install -c constraints.txt chemprop`;
- `product_floor`: the matrix products of graphfold's plan alone, where they are those of nodes.

    python -m benchmarks molecules --shape dmpnn,gine,gcn --batch-size 64,512 --hidden-size 300
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.baselines.molecule_models import (
    Chemprop,
    Parts,
    chemprop_batch,
    compared_weights,
    geometric,
    has_chemprop,
    has_geometric,
)
from benchmarks.baselines.molecule_tensors import (
    OneHot,
    atom_columns,
    bond_columns,
    molecule_tensors,
)
from benchmarks.experiment import Experiment, load_data, load_sized
from benchmarks.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings
from benchmarks.variants import (
    Contest,
    Product,
    ProductFloor,
    Variant,
    Way,
    group_sizes,
    measure_variants,
    require_equal,
    ways_to_run,
)
from graphfold.batching import Batch, Pass, Rounds
from graphfold.layers import GraphModel
from graphfold.training.loop.optimisation import build_optimizer

BATCH_SIZES = (64, 512)
HIDDEN_SIZES = (300,)

#: Batches that a call of a variant goes through.
NUM_BATCHES = 4

_READOUT = "model.readout._target_=graphfold.layers.MeanReadout"
_MEAN = (
    "data=lipophilicity",
    "optimizer=adam",
    _READOUT,
    "+model.head.hidden_size=${model.hidden_size}",
)
_CONVOLUTIONS = (*_MEAN, "model.cells.0._every_.norm=null")
_PLAIN = (*_CONVOLUTIONS, "model.cells.0._every_.residual=false")

#: Shape -> what makes the experiment.
SHAPES: Mapping[str, Sequence[str]] = {
    "dmpnn": ("experiment=lipophilicity_dmpnn", _READOUT),
    "gine": ("model=gine", *_CONVOLUTIONS),
    "gcn": ("model=gcn", *_PLAIN),
    "gat": ("model=gat", *_PLAIN),
    "gatv2": ("model=gatv2", *_PLAIN),
    "pna": ("model=pna", *_PLAIN),
    "attentive_fp": ("model=attentive_fp", *_MEAN),
    "ggnn": ("model=ggnn", *_MEAN),
    "mpnn": ("model=mpnn", *_MEAN),
    "weave": ("model=weave", *_MEAN),
    "fragments": (
        "model=fragments",
        "data=lipophilicity",
        "optimizer=adam",
        "model.cells.0.atom.norm=null",
    ),
}

#: Other widths than `HIDDEN_SIZES`.
WIDTHS: Mapping[str, Sequence[int]] = {"mpnn": (64,)}

#: The models whose products are all of rows of nodes; the floor does not know the features of
#: fragments that are numbers.
OF_NODES = ("dmpnn", "gine", "gcn")


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every model, width and batch size.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    for shape in settings.chosen(SHAPES):
        own = SHAPES[shape]
        data = load_data([*own, *settings.overrides], settings.config_dir)
        widths = WIDTHS.get(shape, HIDDEN_SIZES)
        for hidden_size, batch_size in settings.sizes(widths, BATCH_SIZES):
            experiment = load_sized(own, (hidden_size, batch_size), settings, data)
            batches = experiment.batches(NUM_BATCHES)
            require_equal(make_variants(experiment.double(), batches[:1]))
            variants = make_variants(experiment, batches)
            floors = {}
            if shape in OF_NODES:
                ours = [batch for batch, _ in variants["graphfold"].batches]
                model = experiment.graph_model
                floors["product_floor"] = [product_floor(model, batch) for batch in ours]
            setting = settings.row("molecules", batch_size, hidden_size, shape=shape)
            yield from measure_variants(Contest(setting, variants, floors))


def make_variants(experiment: Experiment, batches: Sequence[Batch]) -> dict[str, Variant]:
    """All variants that can run here, on copies of one model's weights.

    Args:
        experiment: the model; gives precision and device.
        batches: what each variant goes through, in a form of its own.
    """
    model, found = experiment.graph_model, {}
    like = next(model.parameters())
    targets = [model.head.target_rows(batch.dag) for batch in batches]
    adam = partial(torch.optim.Adam, lr=experiment.optimizer.param_groups[0]["lr"])

    def variant(module: nn.Module, batches: Sequence[Any], computes: str = EVERY_NODE) -> Variant:
        module.to(like)
        return Variant(
            forward=lambda pair: module(pair[0]),
            batches=list(zip(batches, targets, strict=True)),
            examples=sum(map(len, targets)),
            loss=lambda raw, pair: model.head.losses(raw, pair[1]).mean(),
            parameters=compared_weights(module),
            module=module,
            optimizer=build_optimizer(adam, list(module.parameters())),
            computes=computes,
        )

    plans = {share: [experiment.plan(batch, share) for batch in batches] for share in (True, False)}
    ways = [(name, EQUAL_ONCE, way) for name, way in ways_to_run(model.network).items()]
    for name, computes, way in [*ways, ("every_node", EVERY_NODE, Way.of(model.network))]:
        own = copy.deepcopy(model)
        way.set(own.network)
        found[name] = variant(own, plans[computes == EQUAL_ONCE], computes)
    parts = Parts(copy.deepcopy(model).cpu())
    if not parts.has_rounds_alone:
        return found
    dags = [batch.dag.to("cpu") for batch in batches]
    atoms = OneHot(list(map(atom_columns, dags)))
    bonds = OneHot(list(map(bond_columns, dags)))
    tensors = [molecule_tensors(dag, atoms, bonds).to(like) for dag in dags]
    if parts.has_geometric and has_geometric():
        found["pyg"] = variant(geometric(parts, atoms, bonds), tensors)
    if parts.is_dmpnn and has_chemprop():
        graphs = list(map(chemprop_batch, tensors))
        found["chemprop"] = variant(Chemprop(parts, atoms, bonds), graphs)
    return found


def product_floor(model: GraphModel, batch: Batch) -> ProductFloor:
    """Every linear layer of a cell over the rows of each round or group, and those of the head."""
    calls: dict[nn.Linear, list[int]] = {}
    for index, (item, by_type) in enumerate(zip(model.passes, model.network.cells, strict=True)):
        for name, cells in by_type.items():  # type: ignore[operator]
            rows = _rows_of_calls(batch, index, item, model.network.schema.type_index(name))
            for number, count in enumerate(rows):
                for layer in _linear_layers(cells[min(number, len(cells) - 1)]):
                    calls.setdefault(layer, []).append(count)
    for layer in _linear_layers(model.head):
        calls[layer] = [batch.num_graphs]
    return ProductFloor([Product(layer.weight, rows) for layer, rows in calls.items()])


def _rows_of_calls(batch: Batch, index: int, item: Pass, op_type: int) -> list[int]:
    """The number of nodes of a type in each round, or in each group, of a pass."""
    unrolled = batch.schedule.unrolled[index]
    if unrolled is None:
        return group_sizes(batch, op_type, index)
    assert isinstance(item, Rounds)
    return [unrolled.rows(number + 1, op_type).size for number in range(item.rounds)]


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
