"""Planning: how many examples per second each policy plans, and how few launches its plans need.

SST's trees with the model of benchmark sst, random trees of Tree-FC, molecules (Lipophilicity) with
rounds of message passing, and generated graphs with several op types at mixed depths, see
`graphfold.bench.mixed_graphs`. The graphs are collated beforehand; a call plans a whole batch. For
SST the rows say which share of a training step planning would be, were it not done by workers.

The variants named by a policy (`graphfold` is `depth`) plan every node. `shared` plans by depth and
computes equal nodes once, as training does where it may; which nodes are equal is known beforehand
for all batches, as a loader knows it of its corpus. `shared_alone` finds that out for each batch,
as `build_schedule` does of itself.
`launches` are the calls of cells that a batch takes, the mean over the batches; `lower_bound` is
what no schedule can go below: the sum over op types of the longest chain of that type.

    graphfold bench schedule
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from graphfold.batching import POLICIES, Pass, Rounds, Schedule, Up, build_schedule
from graphfold.batching.scheduling.deduplicate import deduplicate
from graphfold.batching.scheduling.schedule_report import ScheduleReport
from graphfold.bench.experiment import Experiment, load_data, load_sized
from graphfold.bench.measure import Row, Work, measure, median_seconds
from graphfold.bench.mixed_graphs import FAMILIES
from graphfold.bench.sst import BATCH_SIZES, HIDDEN_SIZES, OVERRIDES
from graphfold.bench.treefc import random_trees
from graphfold.dag import TypedDAG, collate, select
from graphfold.dag.depth import IntArray

#: Batches that a call plans, so that a figure does not hang on one of them.
NUM_BATCHES = 4

#: Generated graphs per batch, unless batch sizes are given.
MIXED_BATCH_SIZES = (64,)

#: Rounds of message passing over the bonds.
ROUNDS = 3


class Workload(NamedTuple):
    """Batches of graphs and what is to be done with them."""

    name: str
    batch_size: int
    dags: Sequence[TypedDAG]
    passes: Sequence[Pass]
    seconds_per_step: float | None = None  # of training on one of the batches, where it is known

    @property
    def needs_policy(self) -> bool:
        """Whether there is a choice: in rounds, all nodes run together."""
        return any(not isinstance(item, Rounds) for item in self.passes)


def rows(
    batch_sizes: list[int] | None,
    hidden_sizes: list[int] | None,
    threads: int,
    overrides: Sequence[str] = (),
) -> Iterator[Row]:
    """Measures every policy on every workload.

    Raises:
        GraphfoldError: if a corpus is not there.
    """
    for workload in _workloads(batch_sizes, hidden_sizes, overrides):
        extra = {"workload": workload.name}
        setting = Row("schedule", "", "", workload.batch_size, 0, "schedule", threads, extra=extra)
        planners: dict[str, Callable[[], list[Schedule]]] = {
            "graphfold" if policy == "depth" else policy: partial(_plan, workload, policy)
            for policy in (POLICIES if workload.needs_policy else ["depth"])
        }
        planners["shared"] = _SharedPlanner(workload)
        planners["shared_alone"] = partial(_plan, workload, "depth", True)
        num_graphs = sum(dag.num_graphs for dag in workload.dags)
        works = {name: Work(planner, num_graphs) for name, planner in planners.items()}
        for row in measure(setting, works):
            figures = {**_share(row, workload), **launches(workload, planners[row.variant]())}
            yield replace(row, extra={**row.extra, **figures})


def launches(workload: Workload, plans: Sequence[Schedule]) -> dict[str, float]:
    """How many calls of cells a batch takes, and how few could do; the mean over the batches."""
    total = ScheduleReport(tuple(plan.report(workload.passes).total for plan in plans)).total
    return {
        "launches": total.launches / len(workload.dags),
        "rows_per_launch": total.rows_per_launch,
        "lower_bound": total.lower_bound / len(workload.dags),
        "launches_over_bound": total.ratio,
    }


def _workloads(
    batch_sizes: list[int] | None, hidden_sizes: list[int] | None, overrides: Sequence[str]
) -> Iterator[Workload]:
    trees = load_data([*OVERRIDES, *overrides])
    width = (hidden_sizes or HIDDEN_SIZES)[0]  # of the model whose step planning is compared with
    for batch_size in batch_sizes or BATCH_SIZES:
        yield _sst(load_sized(OVERRIDES, width, batch_size, overrides, trees), batch_size)
    for batch_size in batch_sizes or (32,):
        yield Workload("treefc", batch_size, [random_trees(batch_size)], [Up()])
    molecules = load_data(["data=lipophilicity", *overrides])
    for batch_size in batch_sizes or (64,):
        dags = _parts(molecules.encoded("train"), batch_size)
        yield Workload("molecules", batch_size, dags, [Rounds("bond", ROUNDS)])
    for name, generate in FAMILIES.items():
        for batch_size in batch_sizes or MIXED_BATCH_SIZES:
            dags = [generate(batch_size, seed) for seed in range(NUM_BATCHES)]
            yield Workload(name, batch_size, dags, [Up()])


def _sst(experiment: Experiment, batch_size: int) -> Workload:
    """SST with the time of a training step."""
    batches = experiment.batches(NUM_BATCHES)

    def steps() -> None:
        for batch in batches:
            experiment.step(batch)

    seconds = median_seconds({"steps": steps})["steps"] / len(batches)
    dags = [batch.dag for batch in batches]
    return Workload("sst", batch_size, dags, experiment.model.passes, seconds)


def _parts(dag: TypedDAG, batch_size: int) -> list[TypedDAG]:
    """The first batches of a corpus."""
    starts = range(0, min(dag.num_graphs, NUM_BATCHES * batch_size), batch_size)
    return [select(dag, range(start, min(start + batch_size, dag.num_graphs))) for start in starts]


def _plan(workload: Workload, policy: str, share: bool = False) -> list[Schedule]:
    return [build_schedule(dag, workload.passes, policy, share) for dag in workload.dags]


class _SharedPlanner:
    """Plans batches of which it is known what is equal in all of them."""

    def __init__(self, workload: Workload) -> None:
        corpus = collate(workload.dags)
        self._workload = workload
        self._equal = deduplicate(corpus, workload.passes)
        bounds = [0, *accumulate(dag.num_nodes for dag in workload.dags)]
        self._nodes = [np.arange(start, stop) for start, stop in pairwise(bounds)]

    def __call__(self) -> list[Schedule]:
        return list(map(self._plan, self._workload.dags, self._nodes))

    def _plan(self, dag: TypedDAG, nodes: IntArray) -> Schedule:
        equal = self._equal.among(nodes)
        return build_schedule(dag, self._workload.passes, share=True, equal=equal)


def _share(row: Row, workload: Workload) -> dict[str, float]:
    """The share of a training step that planning a batch takes, where it is known."""
    if workload.seconds_per_step is None:
        return {}
    graphs = sum(dag.num_graphs for dag in workload.dags) / len(workload.dags)
    return {"share_of_step": graphs / row.examples_per_second / workload.seconds_per_step}
