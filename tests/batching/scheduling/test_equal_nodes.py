"""What is equal in a corpus is equal in its batches, and nothing else is."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from test_sharing import random_dag

from graphfold.batching import Down, Rounds, Up, build_schedule
from graphfold.batching.scheduling.equal_nodes import find_equal, sharing_passes
from graphfold.dag import GraphBuilder, nodes_of_graphs, select
from graphfold.errors import SchemaError

PASSES = {
    "up": [Up()],
    "up twice": [Up(), Up()],
    "rounds": [Rounds("next", 2)],
    "rounds after up": [Up(), Rounds("next", 2), Rounds("next", 1)],
    "up after rounds": [Rounds("next", 2), Up()],
    "down": [Down(), Up()],
}


def tensors(schedule):
    """All that a schedule holds, in order."""
    found = []
    schedule.map_tensors(lambda tensor: found.append(tensor.tolist()) or tensor)
    groups = [part.groups for plan in schedule.passes for part in (plan, *plan.rounds)]
    return found, groups


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("seed", range(8))
def test_batches_share_as_if_they_were_all_there_is(name, seed):
    corpus, passes = random_dag(30, seed), PASSES[name]
    numbers = random.Random(seed).sample(range(30), 7)
    batch = select(corpus, numbers)
    nodes = nodes_of_graphs(corpus, numbers).numpy()
    got = [stage.among(nodes) for stage in find_equal(corpus, passes)]
    want = find_equal(batch, passes)
    assert len(got) == len(want)
    for mine, its in zip(got, want, strict=True):
        assert mine.node.tolist() == its.node.tolist()
        assert mine.of.tolist() == its.of.tolist()
    planned = build_schedule(batch, passes, share=True, equal=got)
    assert tensors(planned) == tensors(build_schedule(batch, passes, share=True))


def test_stages_are_the_start_each_pass_up_and_each_round():
    dag = random_dag(3, 0)
    assert [len(find_equal(dag, passes)) for passes in PASSES.values()] == [2, 3, 3, 5, 3, 1]


def test_later_stages_are_never_coarser():
    stages = find_equal(random_dag(20, 0), [Up(), Rounds("next", 3)])
    for before, after in pairwise(stages):
        assert len(before.node) <= len(after.node)
        pairs = set(zip(after.of.tolist(), before.of.tolist(), strict=True))
        assert len(pairs) == len(after.node)


@pytest.mark.parametrize(
    ("name", "count"),
    [("up twice", 2), ("rounds after up", 3), ("up after rounds", 1), ("down", 0)],
)
def test_passes_share_until_one_cannot(name, count):
    assert sharing_passes(PASSES[name]) == tuple(PASSES[name][:count])


def test_an_unknown_relation_is_refused():
    with pytest.raises(SchemaError, match="bond"):
        find_equal(random_dag(1, 0), [Rounds("bond", 1)])


def test_a_corpus_of_nothing_has_no_equal_nodes():
    dag = select(random_dag(2, 0), [])
    assert [len(stage.node) for stage in find_equal(dag, [Up(), Rounds("next", 1)])] == [0, 0, 0]
    builder = GraphBuilder(dag.schema)
    assert len(find_equal(builder.build(), [Up()])[1].node) == 0
