"""Binary Tree-LSTM on the Stanford Sentiment Treebank, labels on all nodes.

The model of the experiment sst_tree_lstm, Tai et al. (2015), https://arxiv.org/abs/1503.00075, with
words of width 300 and without dropout, so that all variants compute the same. A training step is
forward, the loss of all nodes, backward and the optimizer's step; the batches, the first of an
epoch, are planned beforehand. The row of `sst_epoch` is a whole pass over the training part, with
the planning. The classifier reads the state of every node, whatever the plan. All variants run in
one process, on the same weights:

- `graphfold`: as in `graphfold train`, with the cells compiled where there is a C compiler; equal
  nodes once;
- `untraced`: the same engine and plan with the cells' own code (model.fuse=false); equal nodes
  once;
- `every_node`: graphfold with a plan that shares nothing; every node;
- `cat_levels`: the levels joined by torch.cat under autograd; every node;
- `one_by_one`: a loop over the nodes of the first batch, the classifier once for all of them; every
  node;
- `product_floor`: the matrix products of graphfold's own plan alone; equal nodes once;
- `product_floor_every_node`: those of the plan of `every_node`; every node.

So what sharing gains is `graphfold` against `every_node`, and what the engine gains over
`cat_levels` is `every_node` against it.

    graphfold bench sst --batch-size 25,256
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn

from graphfold.batching import Batch, build_schedule
from graphfold.bench.engine_variants import EVERY_NODE, fusions
from graphfold.bench.equality import require_equal
from graphfold.bench.experiment import Experiment, Forward, load_data, load_sized, total_graphs
from graphfold.bench.measure import Row, Work, measure
from graphfold.bench.one_by_one import TreeLSTMLoop
from graphfold.bench.products import Product, ProductFloor, group_sizes
from graphfold.errors import ConfigError
from graphfold.layers import GraphModel, LeafLSTMCell, NaryTreeLSTMCell

BATCH_SIZES = (25, 256)
HIDDEN_SIZES = (150,)

#: Batches that a call of a variant goes through, so that a figure does not hang on one of them.
NUM_BATCHES = 4

#: Timed passes over the training part.
EPOCHS = 3

#: What makes the experiment a benchmark.
OVERRIDES = ("experiment=sst_tree_lstm", "model.encoder.size=300", "model.dropout=0")


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every width and batch size, and an epoch of the largest batches of each width.

    Raises:
        GraphfoldError: if the corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    data = load_data([*OVERRIDES, *overrides])
    for hidden_size in hidden_sizes or HIDDEN_SIZES:
        for batch_size in sorted(batch_sizes or BATCH_SIZES):
            experiment = load_sized(OVERRIDES, hidden_size, batch_size, overrides, data)
            setting = Row("sst", "graphfold", "", batch_size, hidden_size, "train", threads)
            fuses = fusions(experiment.model.network)  # now, before the variants change it
            yield from _variant_rows(setting, experiment)
        yield from _epoch_rows(setting, experiment, fuses)


class Variants:
    """The ways to compute the raw outputs of one model, and the matrix products they take.

    Args:
        experiment: the model, with what trains it.
        batches: what a call goes through, planned as for training; the loop over nodes takes the
            first of them.
    """

    def __init__(self, experiment: Experiment, batches: Sequence[Batch]) -> None:
        self.experiment = experiment
        self.batches = batches
        model = experiment.model
        self.plain = [Batch(b.dag, build_schedule(b.dag, model.passes)) for b in batches]
        self.floors = {
            "product_floor": [product_floor(model, batch) for batch in batches],
            "product_floor_every_node": [product_floor(model, batch) for batch in self.plain],
        }
        fuses = fusions(model.network)
        self.own = frozenset(fuses)
        self.forwards: Mapping[str, Forward] = {
            **{name: partial(_run_engine, model, "fast", fuse) for name, fuse in fuses.items()},
            EVERY_NODE: partial(_run_engine, model, "fast", model.network.fuse),
            "cat_levels": partial(_run_engine, model, "autograd", None),
            "one_by_one": partial(_run_loop, model),
        }

    def require_equal(self) -> None:
        """Raises RuntimeError if they differ in outputs or gradients on the first batch."""
        results = {name: self._results(name) for name in self.forwards}
        for name, got in results.items():
            require_equal(name, got, results["graphfold"])

    def works(self, phase: str) -> dict[str, Work]:
        """What each variant does in a phase."""
        self.experiment.model.train(phase == "train")
        works = {}
        for name, forward in self.forwards.items():
            batches = self._batches(name)
            function = partial(self._train if phase == "train" else self._infer, forward, batches)
            works[name] = Work(function, total_graphs(batches))
        for name, floors in self.floors.items():
            works[name] = Work(partial(_run_products, floors, phase), total_graphs(self.batches))
        return works

    def _batches(self, name: str) -> Sequence[Batch]:
        """As planned for training for graphfold's own plan; every node for the others."""
        if name in self.own:
            return self.batches
        return self.plain[:1] if name == "one_by_one" else self.plain

    def _train(self, forward: Forward, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.experiment.step(batch, forward)

    def _infer(self, forward: Forward, batches: Sequence[Batch]) -> None:
        with torch.no_grad():
            for batch in batches:
                forward(batch)

    def _results(self, name: str) -> list[Tensor]:
        batch = self._batches(name)[0]
        raw = self.forwards[name](batch)
        loss = self.experiment.loss(raw, batch)
        parameters = list(self.experiment.model.parameters())
        return [raw, *torch.autograd.grad(loss, parameters)]


def _variant_rows(setting: Row, experiment: Experiment) -> Iterator[Row]:
    variants = Variants(experiment, experiment.batches(NUM_BATCHES))
    variants.require_equal()
    for phase in ("train", "inference"):
        yield from measure(replace(setting, phase=phase), variants.works(phase))


def _epoch_rows(
    setting: Row, experiment: Experiment, fuses: Mapping[str, bool | None]
) -> Iterator[Row]:
    """Whole passes over the training part, each in an order of its own, planning included."""
    num_graphs = len(experiment.data.split.train)
    numbers = count()
    works = {
        name: Work(partial(_epoch, experiment, numbers, fuse), num_graphs)
        for name, fuse in fuses.items()
    }
    for row in measure(replace(setting, benchmark="sst_epoch"), works, 0.0, EPOCHS):
        yield replace(row, extra={"seconds_per_epoch": num_graphs / row.examples_per_second})


def _epoch(experiment: Experiment, numbers: Iterator[int], fuse: bool | None) -> None:
    experiment.model.train()
    experiment.model.network.engine, experiment.model.network.fuse = "fast", fuse
    for batch in experiment.loader(next(numbers)):
        experiment.step(batch)


def _run_engine(model: GraphModel, engine: str, fuse: bool | None, batch: Batch) -> Tensor:
    model.network.engine, model.network.fuse = engine, fuse
    raw: Tensor = model(batch)
    return raw


def _run_loop(model: GraphModel, batch: Batch) -> Tensor:
    x = model.encoder(batch.dag)
    types = batch.dag.schema.types
    (leaf_type, leaf), (inner_type, inner) = _cells(model)
    loop = TreeLSTMLoop((inner_type, inner), (leaf_type, leaf))
    h = loop(batch.dag, {index: x[node_type.name] for index, node_type in enumerate(types)})
    raw: Tensor = model.head(h)
    return raw


def product_floor(model: GraphModel, batch: Batch) -> ProductFloor:
    """The groups of the batch's plan, and all rows of the classifier at once."""
    (leaf_type, leaf), (inner_type, inner) = _cells(model)
    products = [
        Product(leaf.from_x.weight, group_sizes(batch, leaf_type)),
        Product(inner.from_h.weight, group_sizes(batch, inner_type)),
    ]
    num_rows = len(model.head.row_graph(batch.dag))
    linear = [module for module in model.head.modules() if isinstance(module, nn.Linear)]
    products += [Product(module.weight, [num_rows]) for module in linear]
    return ProductFloor(products)


def _run_products(floors: Sequence[ProductFloor], phase: str) -> None:
    for floor in floors:
        floor.run(phase)


def _cells(model: GraphModel) -> tuple[tuple[int, LeafLSTMCell], tuple[int, NaryTreeLSTMCell]]:
    """The cells of words and of phrases, each with its op type.

    Raises:
        ConfigError: if overrides made another model of it.
    """
    found = dict(model.network.cells[0].items())  # type: ignore[operator]
    cells = {model.network.schema.type_index(name): cells[0] for name, cells in found.items()}
    leaf = [(t, cell) for t, cell in cells.items() if isinstance(cell, LeafLSTMCell)]
    inner = [(t, cell) for t, cell in cells.items() if isinstance(cell, NaryTreeLSTMCell)]
    if len(leaf) != 1 or len(inner) != 1:
        raise ConfigError(
            "benchmark sst measures a Tree-LSTM with one cell for words and one for phrases. "
            "Leave out the overrides of model."
        )
    return leaf[0], inner[0]
