"""Which policy needs the fewest calls of cells, and what does planning cost?

Trees of the Stanford Sentiment Treebank, random trees of benchmark treefc, molecules
(Lipophilicity) with rounds of message passing, and generated graphs with several op types at mixed
depths (`graphfold.bench.mixed_graphs`). The graphs are collated beforehand; a call plans a whole
batch. `launches` are the calls of cells that a batch takes, the mean over the batches;
`lower_bound` is the sum over op types of the longest chain of that type, below which no plan can
go. Variants:

- `graphfold`: the policy `depth`;
- the other policies by their names;
- `equal_once`: by depth, once it has found which nodes are equal; a loader finds that out once for
  its corpus.

    graphfold bench schedule
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from graphfold.batching import POLICIES, Pass, Rounds, Schedule, Up, build_schedule
from graphfold.bench.benchmarks.treefc import make_trees
from graphfold.bench.experiment import load_data
from graphfold.bench.measure import EQUAL_ONCE, EVERY_NODE, Row, Work, measure
from graphfold.bench.mixed_graphs import FAMILIES
from graphfold.bench.settings import Settings
from graphfold.dag import TypedDAG, select

#: Batches that a call plans, so that a figure does not depend on one of them.
NUM_BATCHES = 4


class Workload(NamedTuple):
    """Batches of graphs and the passes over them."""

    name: str
    dags: Sequence[TypedDAG]
    passes: Sequence[Pass] = (Up(),)


def rows(settings: Settings) -> Iterator[Row]:
    """Measures every policy on every workload.

    Raises:
        GraphfoldError: if a corpus is not there.
    """
    for workload in _workloads(settings):
        batch_size = workload.dags[0].num_graphs
        setting = settings.row("schedule", batch_size, 0, "schedule")
        num_graphs = sum(dag.num_graphs for dag in workload.dags)
        planners = _planners(workload)
        works = {
            name: Work(plan, num_graphs, EQUAL_ONCE if name == "equal_once" else EVERY_NODE)
            for name, plan in planners.items()
        }
        for row in measure((setting, works)):
            found = launches(workload, planners[row.variant]())
            yield replace(row, extra={"workload": workload.name, **found})


def launches(workload: Workload, plans: Sequence[Schedule]) -> dict[str, float]:
    """The number of calls of cells for a batch, and the least there can be; means over batches."""
    totals = [plan.report(workload.passes).total for plan in plans]
    return {
        "launches": sum(total.launches for total in totals) / len(totals),
        "lower_bound": sum(total.lower_bound for total in totals) / len(totals),
    }


def _planners(workload: Workload) -> dict[str, Callable[[], list[Schedule]]]:
    """Variant -> what plans all batches; in rounds all nodes run together, by any policy."""
    has_choice = any(not isinstance(item, Rounds) for item in workload.passes)
    found: dict[str, Callable[[], list[Schedule]]] = {
        "graphfold" if policy == "depth" else policy: partial(_plan, workload, policy)
        for policy in (POLICIES if has_choice else ["depth"])
    }
    return {**found, "equal_once": partial(_plan, workload, "depth", share=True)}


def _plan(workload: Workload, policy: str, share: bool = False) -> list[Schedule]:
    return [build_schedule(dag, workload.passes, policy, share) for dag in workload.dags]


def _graphs(own: str, settings: Settings) -> TypedDAG:
    """The training part of a config."""
    return load_data([own, *settings.overrides], settings.config_dir).encoded("train")


def _workloads(settings: Settings) -> Iterator[Workload]:
    trees = _graphs("experiment=sst_tree_lstm", settings)
    for size in settings.batch_sizes or (25, 256):
        yield Workload("sst", _first_batches(trees, size))
    for size in settings.batch_sizes or (32,):
        yield Workload("treefc", [make_trees("random", size)])
    molecules = _graphs("data=lipophilicity", settings)
    for size in settings.batch_sizes or (64,):
        yield Workload("molecules", _first_batches(molecules, size), [Rounds("bond", 3)])
    for name, generate in FAMILIES.items():
        for size in settings.batch_sizes or (64,):
            yield Workload(name, [generate(size, seed) for seed in range(NUM_BATCHES)])


def _first_batches(dag: TypedDAG, size: int) -> list[TypedDAG]:
    """The first batches of a corpus."""
    starts = range(0, min(dag.num_graphs, NUM_BATCHES * size), size)
    return [select(dag, range(start, min(start + size, dag.num_graphs))) for start in starts]
