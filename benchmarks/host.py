"""How much time does a step cost beside its products: calls of Python and torch, plans, copies?

At widths of 4 and 8 the products cost next to nothing, so what is left is the work of the host, for
which a GPU waits. `milliseconds` are those of one batch. The passes `dmpnn` are the network of the
experiment lipophilicity_dmpnn, `sst` that of sst_tree_lstm, both without encoder, readout, head and
optimizer: a training step is forward and backward to the weights and to the encoded features, which
are given for every node. The step of the smallest batch is nearly all fixed cost. Variants:

- `graphfold`: the plan of training, the cells compiled where there is a C compiler;
- `torch`: the same plan, and cells compiled to operations of torch (`backend="torch"`);
- `every_node`: a plan that shares nothing;
- `first_use`: as `graphfold`, with a plan that no step has used before;
- `by_hand` (`dmpnn`): a loop of `index_select`, `linear` and `index_add_` over every node.

Phase `schedule` is what the loader does for a batch, without selecting its graphs:

- `graphfold`: planning for training; equal nodes of the corpus are found ahead, once;
- `every_node`: planning where nothing is shared;
- `equal_in_batch`: planning where equal nodes are found batch by batch;
- `copy`: a copy of a planned batch, tensor by tensor, as for a GPU.

`dmpnn_model` is the model of benchmark molecules beside PyTorch Geometric, where that is installed.
`graphfold` and `every_node` plan each batch within the step, `pyg` is given its tensors.

    python -m benchmarks host
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.baselines.molecule_models import Parts
from benchmarks.baselines.molecule_tensors import ends, reverse
from benchmarks.experiment import Experiment, load_data, load_sized
from benchmarks.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings, Work, measure
from benchmarks.molecules import SHAPES as MODELS
from benchmarks.molecules import make_variants as make_models
from benchmarks.variants import Forward, Variant, require_equal, ways_to_run, with_way
from graphfold.batching import Batch, Rounds
from graphfold.batching.batch import plan_batch
from graphfold.batching.scheduling.deduplicate import EqualNodes
from graphfold.dag import TypedDAG
from graphfold.layers import DMPNNAtomCell, DMPNNBondCell, GraphModel

#: Batches of the model that a call goes through.
NUM_BATCHES = 4


class Passes(NamedTuple):
    """A network whose passes are measured."""

    overrides: Sequence[str]
    hidden_sizes: Sequence[int]
    batch_sizes: Sequence[int]  # of steps
    planned: Sequence[int]  # batch sizes of planning


SST = ("experiment=sst_tree_lstm", "model.dropout=0")
PASSES = {
    "dmpnn": Passes(MODELS["dmpnn"], (4, 8), (2, 64), (64, 512)),
    "sst": Passes(SST, (4,), (1, 25), (25, 256)),
}
MODEL, MODEL_SIZES = "dmpnn_model", ((8,), (64,))


def rows(settings: Settings) -> Iterator[Row]:
    """Measures steps and planning of each network, then the model.

    Raises:
        GraphfoldError: if a corpus is not there.
        RuntimeError: if a variant computes something else than graphfold.
    """
    for shape in settings.chosen([*PASSES, MODEL]):
        own = MODELS["dmpnn"] if shape == MODEL else PASSES[shape].overrides
        data = load_data([*own, *settings.overrides], settings.config_dir)
        load = partial(load_sized, own, settings=settings, data=data)
        for setting, works in _contests(shape, settings, load):
            for row in measure((setting, works)):
                milliseconds = 1000 * row.batch_size / row.examples_per_second
                yield replace(row, extra={"milliseconds": milliseconds})


def _contests(
    shape: str, settings: Settings, load: Callable[[tuple[int, int]], Experiment]
) -> Iterator[tuple[Row, dict[str, Work]]]:
    """The settings of a shape, each with its variants; `load` takes (hidden size, batch size)."""
    if shape == MODEL:
        for sizes in settings.sizes(*MODEL_SIZES):
            setting = settings.row("host", sizes[1], sizes[0], "train", shape=shape)
            yield setting, model_works(load(sizes))
        return
    passes = PASSES[shape]
    for sizes in settings.sizes(passes.hidden_sizes, passes.batch_sizes):
        experiment = load(sizes)
        require_equal(step_variants(experiment.double()))
        variants = step_variants(experiment)
        setting = settings.row("host", sizes[1], sizes[0], "train", shape=shape)
        yield setting, {name: variant.work("train") for name, variant in variants.items()}
    for batch_size in settings.batch_sizes or passes.planned:
        setting = settings.row("host", batch_size, 0, "schedule", shape=shape)
        yield setting, planning_works(load((passes.hidden_sizes[0], batch_size)))


def step_variants(experiment: Experiment) -> dict[str, Variant]:
    """The variants of a training step of the passes, over the first batch of an epoch."""
    model, (batch,) = experiment.graph_model, experiment.batches(1)
    network, every_node = model.network, experiment.plan(batch, share=False)
    x = {name: value.detach() for name, value in model.encoder(batch.dag).items()}
    given = [value.requires_grad_() for value in x.values() if value.numel()]
    weights = list(network.parameters())

    def engine(planned: Batch) -> Tensor:
        return network(planned, x).at("h", planned.dag.output_index)

    direction = torch.randn_like(engine(batch))

    def variant(forward: Forward, planned: Batch, computes: str) -> Variant:
        return Variant(
            forward,
            [planned],
            batch.num_graphs,
            lambda states, _: (states * direction).sum(),
            [*weights, *given],
            network,
            computes=computes,
            in_order=lambda results: results[: 1 + len(weights)],  # x differs where nodes are equal
        )

    ways = {name: with_way(network, engine, way) for name, way in ways_to_run(network).items()}
    ways.pop("untraced")
    ours = ways["graphfold"]
    ways["first_use"] = lambda planned: ours(_unused(planned))
    found = {name: variant(forward, batch, EQUAL_ONCE) for name, forward in ways.items()}
    found["every_node"] = variant(ours, every_node, EVERY_NODE)
    if isinstance(model.passes[0], Rounds):
        found["by_hand"] = variant(ByHand(model, batch.dag, x), every_node, EVERY_NODE)
    return found


class ByHand:
    """The passes of D-MPNN as a loop of torch's operations.

    Args:
        model: gives the weights and the number of rounds.
        dag: the molecules.
        x: type name -> [num_nodes_of_type, hidden_size] what the cells are given.
    """

    def __init__(self, model: GraphModel, dag: TypedDAG, x: Mapping[str, Tensor]) -> None:
        parts = Parts(model)
        bond, atom = parts.cells
        assert isinstance(bond, DMPNNBondCell)
        assert isinstance(atom, DMPNNAtomCell)
        self.rounds, self.message, self.last = parts.rounds, bond.message, atom.from_bonds
        self.source, self.target = ends(dag)
        self.reverse, self.x = reverse(self.source), x

    def __call__(self, batch: Batch) -> Tensor:
        """[num_atoms, hidden_size]"""
        start = self.x["bond"]
        h = torch.relu(start)
        for _ in range(self.rounds):
            behind = self._arrived(h).index_select(0, self.source)
            h = torch.relu(self.message(behind - h.index_select(0, self.reverse)) + start)
        return torch.relu(self.last(self._arrived(h)) + self.x["atom"])

    def _arrived(self, h: Tensor) -> Tensor:
        return torch.zeros_like(self.x["atom"]).index_add_(0, self.target, h)


def planning_works(experiment: Experiment) -> dict[str, Work]:
    """Ways to plan the first batch of an epoch, and a copy of it."""
    (batch,) = experiment.batches(1)
    plans: Mapping[str, Callable[[], object]] = planners(experiment, 1)
    functions = {**plans, "copy": lambda: batch.map_tensors(torch.clone)}
    works = {name: Work(one, batch.num_graphs, EQUAL_ONCE) for name, one in functions.items()}
    works["every_node"] = works["every_node"]._replace(computes=EVERY_NODE)
    return works


def planners(experiment: Experiment, count: int) -> dict[str, Callable[[], list[Batch]]]:
    """Ways to plan the first batches of an epoch, whose graphs are selected already."""
    loader, passes = experiment.loader(), experiment.model.passes
    dags = [batch.dag for batch in experiment.batches(count)]
    numbers = list(islice(loader.sampler, count))

    def plan(dag: TypedDAG, share: bool, equal: EqualNodes | None = None) -> Batch:
        # A copy, since graphs remember what has been computed of them.
        return plan_batch(dag.map_tensors(_itself), None, passes, share=share, equal=equal)

    def ahead() -> list[Batch]:
        equal = map(loader.dataset.equal_among, numbers)
        return [plan(dag, True, own) for dag, own in zip(dags, equal, strict=True)]

    return {
        "graphfold": ahead,
        "every_node": lambda: [plan(dag, False) for dag in dags],
        "equal_in_batch": lambda: [plan(dag, True) for dag in dags],
    }


def model_works(experiment: Experiment) -> dict[str, Work]:
    """Steps of the model beside PyTorch Geometric's, with the planning of each batch."""
    batches = experiment.batches(NUM_BATCHES)
    require_equal(make_models(experiment.double(), batches[:1]))
    variants, plans = make_models(experiment, batches), planners(experiment, NUM_BATCHES)

    def train(name: str) -> None:
        targets = [target for _, target in variants[name].batches]
        planned = list(zip(plans[name](), targets, strict=True))
        replace(variants[name], batches=planned).train()

    names = [name for name in ("graphfold", "every_node", "pyg") if name in variants]
    works = {name: variants[name].work("train") for name in names}
    return {
        name: work._replace(function=partial(train, name)) if name in plans else work
        for name, work in works.items()
    }


def _unused(batch: Batch) -> Batch:
    """The batch with a plan of the same tensors that nothing has used."""
    plan = batch.schedule.map_tensors(_itself)
    return Batch(batch.dag, plan, batch.versions)


def _itself(tensor: Tensor) -> Tensor:
    return tensor
