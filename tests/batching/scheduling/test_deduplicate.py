"""Nodes are equal in a batch if and only if they are equal in the corpus."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from test_sharing import SCHEMA, random_dag

from graphfold.batching import Down, Rounds, Up, build_schedule
from graphfold.batching.kernels.row_numbers import Classes
from graphfold.batching.scheduling.deduplicate import deduplicate
from graphfold.dag import GraphBuilder, nodes_of_graphs, select
from graphfold.errors import SchemaError

PASSES = {
    "up": [Up()],
    "up twice": [Up(), Up()],
    "rounds": [Rounds("next", 2)],
    "rounds after up": [Up(), Rounds("next", 2), Rounds("next", 1)],
    "up after rounds": [Rounds("next", 2), Up()],
    "down": [Down(), Up()],
    "down after up": [Up(), Down()],
}


def tensors(schedule):
    """All that a schedule holds, in order."""
    parts = []
    schedule.map_tensors(lambda tensor: parts.append(tensor.tolist()) or tensor)
    return parts, [plan.groups for plan in schedule.passes]


def all_classes(equal):
    stages = [Classes.of_equal(stage) for stage in equal.stages if stage is not None]
    return [equal.own, equal.final, *stages]


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_a_corpus_share_like_batches_alone(name, seed):
    corpus, passes = random_dag(30, seed), PASSES[name]
    numbers = random.Random(seed).sample(range(30), 7)
    batch = select(corpus, numbers)
    nodes = nodes_of_graphs(corpus, numbers).numpy()
    got, want = deduplicate(corpus, passes).among(nodes), deduplicate(batch, passes)
    for mine, its in zip(all_classes(got), all_classes(want), strict=True):
        assert mine.representative.tolist() == its.representative.tolist()
        assert mine.inverse.tolist() == its.inverse.tolist()
    planned = build_schedule(batch, passes, share=True, equal=got)
    assert tensors(planned) == tensors(build_schedule(batch, passes, share=True))


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_divides_the_classes_before_it(name):
    dag, passes = random_dag(20, 0), PASSES[name]
    found = [deduplicate(dag, passes[:count]).final for count in range(len(passes) + 1)]
    for before, after in pairwise(found):
        pairs = set(zip(after.inverse.tolist(), before.inverse.tolist(), strict=True))
        assert len(pairs) == len(after.representative)


def test_siblings_of_one_kind_are_equal_on_the_way_down_if_their_readers_are():
    builder = GraphBuilder(SCHEMA)
    for weight in (1.0, 2.0):
        pair = [builder.node("word", code=0), builder.node("word", code=0)]
        root = builder.node("phrase")
        builder.inputs(root, pair, weight=[1.0, weight])
        builder.output(root)
        builder.finish()
    # In the first graph both words are read over a 1, in the second the other word over a 2.
    assert deduplicate(builder.build(), [Up()]).final.inverse.tolist() == [0, 0, 1, 0, 0, 2]
    assert deduplicate(builder.build(), [Up(), Down()]).final.inverse.tolist() == [0, 0, 1, 2, 3, 4]


def test_an_unknown_relation_is_refused():
    with pytest.raises(SchemaError, match="bond"):
        deduplicate(random_dag(1, 0), [Rounds("bond", 1)])


def test_a_corpus_of_nothing_has_no_equal_nodes():
    dag = select(random_dag(2, 0), [])
    for graphs in (dag, GraphBuilder(dag.schema).build()):
        equal = deduplicate(graphs, [Up(), Rounds("next", 1), Down()])
        assert [len(classes.inverse) for classes in all_classes(equal)] == [0] * 4
