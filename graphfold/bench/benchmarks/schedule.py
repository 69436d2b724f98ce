"""Which policy needs the fewest calls of cells, and what does planning cost?

Trees of the Stanford Sentiment Treebank, random trees of benchmark treefc, molecules
(Lipophilicity) with rounds of message passing, and generated graphs with several op types at mixed
depths, where the choice of a policy matters. The graphs are collated beforehand; a call plans a
whole batch. `launches` are the calls of cells that a batch takes, the mean over the batches;
`lower_bound` is the sum over op types of the longest chain of that type, below which no plan can
go. Variants:

- `graphfold`: the policy `depth`;
- the other policies by their names;
- `equal_once`: by depth, once it has found which nodes are equal; a loader finds that out once for
  its corpus.

    graphfold bench schedule
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from graphfold.batching import POLICIES, Pass, Rounds, Schedule, Up, build_schedule
from graphfold.bench.benchmarks.treefc import make_trees
from graphfold.bench.experiment import load_data
from graphfold.bench.measure import EQUAL_ONCE, EVERY_NODE, Row, Settings, Work, measure
from graphfold.dag import GraphBuilder, NodeType, Schema, TypedDAG, select

#: (how many graphs, seed) -> graphs
Family: TypeAlias = Callable[[int, int], TypedDAG]

TEXT = Schema(
    (NodeType("letter", 1), NodeType("word", 1), NodeType("phrase", 2), NodeType("label", 1))
)
LATTICE = Schema((NodeType("letter", None), NodeType("word", 1), NodeType("label", 1)))


def letters_to_sentences(count: int, seed: int = 0) -> TypedDAG:
    """Letters in chains make words, words in a tree a sentence; every word and phrase has a label.

    The tagger and parser over words spelled out, as in Fold's examples. Words differ in length, so
    they are complete at different depths.
    """
    rng, builder = random.Random(seed), GraphBuilder(TEXT)
    for _ in range(count):
        nodes = [_spell(builder, rng.randint(1, 12)) for _ in range(rng.randint(3, 25))]
        row = list(nodes)
        while len(row) > 1:  # neighbours join in random order
            left = rng.randrange(len(row) - 1)
            nodes.append(builder.node("phrase", row[left : left + 2]))
            row[left : left + 2] = nodes[-1:]
        builder.output(*builder.nodes("label", len(nodes), inputs=[[node] for node in nodes]))
        builder.finish()
    return builder.build()


def word_lattices(count: int, seed: int = 0) -> TypedDAG:
    """Chains of letters with words as short cuts; a letter reads the words that end before it.

    The lattice LSTM of Zhang and Yang (2018), https://arxiv.org/abs/1805.02023, a workload of
    ED-Batch; every letter has a label.
    """
    rng, builder = random.Random(seed), GraphBuilder(LATTICE)
    for _ in range(count):
        letters: list[int] = []
        ending: dict[int, list[int]] = {}
        length = rng.randint(8, 40)
        for position in range(length):
            before = letters[-1:] + ending.pop(position, [])
            letters.append(builder.node("letter", before))
            for end in range(position + 2, min(position + 5, length)):
                if rng.random() < 0.25:
                    ending.setdefault(end, []).append(builder.node("word", [letters[-1]]))
        builder.output(*builder.nodes("label", length, inputs=[[letter] for letter in letters]))
        builder.finish()
    return builder.build()


FAMILIES: Mapping[str, Family] = {
    "letters_to_sentences": letters_to_sentences,
    "word_lattices": word_lattices,
}


def _spell(builder: GraphBuilder, length: int) -> int:
    """A word over a chain of letters; the first letter has no letter before it."""
    before: int | None = None
    for _ in range(length):
        before = builder.node("letter", [before])
    return builder.node("word", [before])


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
