"""Profiling: where the time of a training step goes, and what was not batched.

A few steps of an experiment are taken twice: once by the clock, once under torch's profiler. The
clock gives planning, the rest of the loader, the optimizer, and forward and backward together; the
profiler gives what the operations of forward and backward take themselves. What is left of forward
and backward is Python and the dispatch of operations.

    graphfold bench profile experiment=sst_tree_lstm data.batch_size=256
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, pairwise
from statistics import fmean
from typing import Any, TypeAlias

from torch.autograd.profiler import record_function

from graphfold.batching import Batch, build_schedule
from graphfold.bench.experiment import Trainable
from graphfold.bench.op_times import op_seconds
from graphfold.bench.unbatched import Fallbacks, GradientsPerGroup, Launches, count_launches
from graphfold.datasets.loader import GraphDataset
from graphfold.layers.model import Model

#: Batches that are profiled, and steps before that, in which memory and kernels settle.
STEPS = 16
WARM_UP = 8

#: The block whose operations the profiler leaves out: the clock has it.
_OPTIMIZER = "graphfold: optimizer"

_COMPUTE = "forward and backward"

#: Part of a step -> seconds.
Seconds: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Profile:
    """Where a training step's time goes.

    Args:
        batch_size: graphs in a batch.
        seconds: part -> seconds per step, in the order of the table.
        launches: how nodes are grouped.
        per_group: (parameter, function) whose gradient is taken group by group.
        fallbacks: why a cell runs slower than it could, in words.
    """

    batch_size: float
    seconds: Mapping[str, float]
    launches: Sequence[Launches]
    per_group: Sequence[tuple[str, str]]
    fallbacks: Sequence[str]

    @property
    def total(self) -> float:
        """Seconds per step."""
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "batch_size": self.batch_size,
            "seconds_per_step": self.total,
            "share": {name: value / self.total for name, value in self.seconds.items()},
            "launches": [
                {**asdict(line), "rows_per_group": line.rows_per_group} for line in self.launches
            ],
            "gradients_per_group": [
                {"parameter": parameter, "function": function}
                for parameter, function in self.per_group
            ],
            "fallbacks": list(self.fallbacks),
        }


def profile(experiment: Trainable) -> Profile:
    """Profiles the first steps of training."""
    experiment.model.train()
    batches = experiment.batches(STEPS)
    per_group = _gradients_per_group(experiment.model, batches[0])
    with Fallbacks() as fallbacks:
        for batch in islice(cycle(batches), WARM_UP):
            experiment.step(batch)
    wall = _clock(experiment)
    compute = wall.pop(_COMPUTE)
    ops = op_seconds(lambda: _steps(experiment, batches), leave_out=_OPTIMIZER)
    ops = {name: seconds / len(batches) for name, seconds in ops.items()}
    other = max(0.0, compute - sum(ops.values()))
    return Profile(
        batch_size=fmean(batch.num_graphs for batch in batches),
        seconds={**wall, **ops, "Python and dispatch": other},
        launches=count_launches([b.computed for b in batches], experiment.model.passes),
        per_group=per_group,
        fallbacks=list(fallbacks.messages),
    )


def _gradients_per_group(model: Model, batch: Batch) -> list[tuple[str, str]]:
    model = copy.deepcopy(model)
    model.network.fuse = False  # a trace hides what the cell calls
    with GradientsPerGroup(model) as watch:
        model(batch)
    return list(watch.uses)


def _clock(experiment: Trainable) -> Seconds:
    """The parts of a step by the clock, the mean over some steps."""
    loader = experiment.loader()
    assert isinstance(loader.dataset, GraphDataset)
    numbers = islice(loader.sampler, STEPS)
    steps = [_timed_step(experiment, loader.dataset, own) for own in numbers]
    return {name: fmean(step[name] for step in steps) for name in steps[0]}


def _timed_step(experiment: Trainable, dataset: GraphDataset, numbers: list[int]) -> Seconds:
    """A step by the clock."""
    times = [time.perf_counter()]
    batch = dataset[numbers]
    times.append(time.perf_counter())
    # Again, to tell it from the rest.
    equal, share = dataset.equal_among(numbers), batch.schedule.is_shared
    build_schedule(batch.computed.dag, experiment.model.passes, share=share, equal=equal)
    times.append(time.perf_counter())
    experiment.loss(experiment.model(batch), batch).backward()  # type: ignore[no-untyped-call]
    times.append(time.perf_counter())
    _optimize(experiment)
    times.append(time.perf_counter())
    made, planned, computed, optimized = (b - a for a, b in pairwise(times))
    return {
        "loader": max(0.0, made - planned),
        "schedule": planned,
        _COMPUTE: computed,
        "optimizer": optimized,
    }


def _steps(experiment: Trainable, batches: Sequence[Batch]) -> None:
    for batch in batches:
        experiment.loss(experiment.model(batch), batch).backward()  # type: ignore[no-untyped-call]
        with record_function(_OPTIMIZER):
            _optimize(experiment)


def _optimize(experiment: Trainable) -> None:
    experiment.optimizer.step()
    experiment.optimizer.zero_grad()
