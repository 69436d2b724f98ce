"""Memory: what a training step holds, per node.

SST with the model of benchmark sst, and Lipophilicity with the D-MPNN of benchmark molecules
(depth 3), over batches of growing size. `bytes_per_node` is what forward leaves for backward, the
outputs and the loss included; `peak_bytes_per_node` is the most that a whole step has allocated at
a time, gradients of the parameters included, which do not grow with the batch. Both are counted by
torch's allocator and divided by the number of all nodes, computed or not; weights, the optimizer's
state and the batch are there beforehand and do not count. Variants:

- `graphfold`: with a plan that shares, as training does where it may; equal nodes once;
- `every_node`: graphfold with a plan that shares nothing; every node;
- `cat_levels` (SST): the levels joined by torch.cat under autograd; every node.

    graphfold bench memory --batch-size 8,32,128,512
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from graphfold.batching import Batch, Rounds, build_schedule
from graphfold.bench import molecules, sst
from graphfold.bench.engine_variants import EVERY_NODE
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import Row, Work, measure

BATCH_SIZES = (8, 32, 128, 512)

#: Workload -> what makes its experiment.
WORKLOADS: Mapping[str, Sequence[str]] = {
    "sst": sst.OVERRIDES,
    "molecules": molecules.SHAPES["dmpnn"],
}

#: Workload -> its width, unless widths are given.
HIDDEN_SIZES = {"sst": sst.HIDDEN_SIZES, "molecules": molecules.HIDDEN_SIZES}


class Bytes(NamedTuple):
    """What torch's allocator gave out during a call."""

    held: int  # and what was still in use at its end
    peak: int  # the most that was in use at a time


class Variant(NamedTuple):
    """A way to train on a batch."""

    batch: Batch
    engine: str  # of the network


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every workload, width and batch size.

    Raises:
        GraphfoldError: if a corpus is not there.
    """
    for workload, own in WORKLOADS.items():
        data = load_data([*own, *overrides])
        for hidden_size in hidden_sizes or HIDDEN_SIZES[workload]:
            for batch_size in batch_sizes or BATCH_SIZES:
                experiment = load_sized(own, hidden_size, batch_size, overrides, data)
                extra = {"workload": workload}
                setting = Row(
                    "memory", "", "", batch_size, hidden_size, "train", threads, extra=extra
                )
                yield from variant_rows(setting, experiment)


def variant_rows(
    setting: Row, experiment: Experiment, device: torch.device | str = "cpu"
) -> Iterator[Row]:
    """The rows of one model and batch.

    Args:
        setting: what they have in common.
        experiment: the model, on `device`.
        device: where it runs.
    """
    experiment.model.train()
    variants = _variants(experiment, device)
    works = {
        name: Work(partial(_step, experiment, variant), variant.batch.num_graphs)
        for name, variant in variants.items()
    }
    for row in measure(setting, works):
        found = figures(experiment, variants[row.variant], torch.device(device))
        yield replace(row, extra={**row.extra, **found})


def figures(experiment: Experiment, variant: Variant, device: torch.device) -> dict[str, int]:
    """The bytes of a step, after some that let the allocator settle."""
    num_nodes = variant.batch.dag.num_nodes
    held = allocated(partial(_forward, experiment, variant), device).held
    peak = allocated(partial(_step, experiment, variant), device).peak
    return {
        "nodes": num_nodes,
        "bytes_per_node": round(held / num_nodes),
        "peak_bytes_per_node": round(peak / num_nodes),
    }


def allocated(function: Callable[[], object], device: torch.device) -> Bytes:
    """What a call allocates on a device, its result still there at the end."""
    gc.collect()
    return _on_cuda(function, device) if device.type == "cuda" else _on_cpu(function)


def _on_cuda(function: Callable[[], object], device: torch.device) -> Bytes:
    """The allocator itself keeps count."""
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = function()
    held = torch.cuda.memory_allocated(device) - before
    del result
    return Bytes(held, torch.cuda.max_memory_allocated(device) - before)


def _on_cpu(function: Callable[[], object]) -> Bytes:
    """The allocator tells the profiler of every block that it gives out or takes back."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler writes of itself to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        result = function()
    del result
    events = (e for e in found.profiler.kineto_results.events() if e.name() == "[memory]")
    changes = [e.nbytes() for e in sorted(events, key=lambda event: event.start_ns())]
    in_use = list(accumulate(changes, initial=0))
    return Bytes(in_use[-1], max(in_use))


def _variants(experiment: Experiment, device: torch.device | str) -> dict[str, Variant]:
    dag = experiment.batches(1)[0].dag
    network = experiment.model.network
    shared, every_node = (
        Batch(dag, build_schedule(dag, network.passes, share=share)).to(device)
        for share in (True, False)
    )
    found = {"graphfold": Variant(shared, "fast"), EVERY_NODE: Variant(every_node, "fast")}
    if all(isinstance(item, Rounds) for item in network.passes):
        return found  # rounds run under ordinary autograd in every engine
    return {**found, "cat_levels": Variant(every_node, "autograd")}


def _forward(experiment: Experiment, variant: Variant) -> object:
    """The loss, which holds all that backward needs."""
    experiment.model.network.engine = variant.engine
    return experiment.loss(experiment.model(variant.batch), variant.batch)


def _step(experiment: Experiment, variant: Variant) -> None:
    loss: Any = _forward(experiment, variant)
    loss.backward()
    experiment.optimizer.step()
    experiment.optimizer.zero_grad()
