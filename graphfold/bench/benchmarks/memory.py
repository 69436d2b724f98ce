"""How much memory does a training step need?

SST with the model of benchmark sst, and Lipophilicity with the D-MPNN of benchmark molecules
(depth 3), over batches of growing size. `bytes_per_node` is what forward keeps for backward,
outputs and loss included; `peak_bytes_per_node` is the largest amount that a whole step has
allocated at one time, with the gradients of the parameters, which do not grow with the batch. Both
are counted by torch's allocator and divided by the number of all nodes, computed or not; weights,
the optimizer's state and the batch exist beforehand and do not count. Variants:

- `graphfold`: with the plan of `graphfold train`;
- `every_node`: graphfold with a plan that shares nothing;
- `cat_levels` (SST): the levels joined by `torch.cat` under autograd.

    graphfold bench memory --batch-size 8,32,128,512
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from graphfold.batching import Batch, Rounds
from graphfold.bench.benchmarks import molecules, sst
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings, Work, measure

BATCH_SIZES = (8, 32, 128, 512)

#: Workload -> what makes its experiment, and its widths.
WORKLOADS: Mapping[str, tuple[Sequence[str], Sequence[int]]] = {
    "sst": (sst.OVERRIDES, sst.HIDDEN_SIZES),
    "molecules": (molecules.SHAPES["dmpnn"], molecules.HIDDEN_SIZES),
}


class Bytes(NamedTuple):
    """The bytes that torch's allocator gave out during a call."""

    held: int  # and what was still in use at its end
    peak: int  # the most that was in use at a time


class Step(NamedTuple):
    """A training step on one batch."""

    experiment: Experiment
    batch: Batch
    engine: str = "fast"

    def forward(self) -> Tensor:
        """The loss, which holds all that backward needs."""
        self.experiment.model.network.engine = self.engine
        return self.experiment.loss(self.experiment.model(self.batch), self.batch)

    def run(self) -> None:
        """The whole step."""
        self.experiment.model.network.engine = self.engine
        self.experiment.step(self.batch)


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every workload, width and batch size.

    Raises:
        GraphfoldError: if a corpus is not there.
    """
    for workload, (own, hidden_sizes) in WORKLOADS.items():
        data = load_data([*own, *settings.overrides], settings.config_dir)
        for sizes in settings.sizes(hidden_sizes, BATCH_SIZES):
            experiment = load_sized(own, sizes, settings, data)
            experiment.model.train()
            steps = make_steps(experiment)
            works = {
                name: Work(step.run, sizes[1], EQUAL_ONCE if name == "graphfold" else EVERY_NODE)
                for name, step in steps.items()
            }
            extra = {"workload": workload}
            setting = settings.row("memory", sizes[1], sizes[0], "train", extra=extra)
            for row in measure((setting, works)):
                yield replace(row, extra={**extra, **figures(steps[row.variant])})


def make_steps(experiment: Experiment) -> dict[str, Step]:
    """Variant -> its step; rounds of message passing have no levels to join."""
    (batch,) = experiment.batches(1)
    every_node = experiment.plan(batch, share=False)
    found = {
        "graphfold": Step(experiment, experiment.plan(batch, share=True)),
        "every_node": Step(experiment, every_node),
    }
    if all(isinstance(item, Rounds) for item in experiment.model.passes):
        return found
    return {**found, "cat_levels": Step(experiment, every_node, "autograd")}


def figures(step: Step) -> dict[str, int]:
    """The bytes of a step, which has run before."""
    num_nodes = step.batch.dag.num_nodes
    return {
        "nodes": num_nodes,
        "bytes_per_node": round(allocated(step.forward).held / num_nodes),
        "peak_bytes_per_node": round(allocated(step.run).peak / num_nodes),
    }


def allocated(function: Callable[[], object]) -> Bytes:
    """The bytes that a call allocates, its result still there at the end; on a CPU."""
    gc.collect()
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler logs to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        result = function()
    del result
    events = (e for e in found.profiler.kineto_results.events() if e.name() == "[memory]")
    changes = [e.nbytes() for e in sorted(events, key=lambda event: event.start_ns())]
    in_use = list(accumulate(changes, initial=0))
    return Bytes(in_use[-1], max(in_use))
