"""Policies by themselves: how many launches they need."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine_cells import SCHEMA

from graphfold.batching import Up, build_schedule
from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.policies import PassGraph, by_critical_path, by_depth
from graphfold.dag import GraphBuilder
from graphfold.dag.depth import count_pointers, longest_path


def random_trees(num_trees, num_types, seed):
    """Trees over leaves of type 0, their inner nodes of the other types."""
    rng = random.Random(seed)
    op_type, child, parent = [], [], []
    for _ in range(num_trees):
        open_nodes = []
        for _ in range(rng.randint(2, 20)):
            open_nodes.append(len(op_type))
            op_type.append(0)
        while len(open_nodes) > 1:
            rng.shuffle(open_nodes)
            read = [open_nodes.pop(), open_nodes.pop()]
            child += read
            parent += [len(op_type)] * 2
            open_nodes.append(len(op_type))
            op_type.append(rng.randint(1, num_types))
    child, parent = np.array(child), np.array(parent)
    depth = longest_path(len(op_type), source=child, target=parent)
    edges = Edges.from_csr(count_pointers(parent, len(op_type)), child)
    return PassGraph(np.array(op_type), depth, edges)


def num_launches(graph, step):
    return len(set(zip(step.tolist(), graph.op_type.tolist(), strict=True)))


@pytest.mark.parametrize("seed", range(3))
def test_critical_path_is_depth_where_inner_nodes_have_one_type(seed):
    graph = random_trees(6, 1, seed)
    assert by_critical_path(graph).tolist() == by_depth(graph).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_critical_path_needs_fewer_launches_where_inner_nodes_have_several_types(seed):
    graph = random_trees(40, 3, seed)
    by_path = num_launches(graph, by_critical_path(graph))
    assert by_path < 0.9 * num_launches(graph, by_depth(graph))


def test_critical_path_lets_nodes_gather():
    # word-pair-phrase beside word-phrase: the lone phrase waits for the one above the pair.
    builder = GraphBuilder(SCHEMA)
    a, b = builder.node("word"), builder.node("word")
    pair = builder.node("pair", [a, a])
    builder.output(builder.node("phrase", [pair]), builder.node("phrase", [b]))
    builder.finish()
    (plan,) = build_schedule(builder.build(), [Up()], "critical_path").passes
    assert [group.op_type for group in plan.groups] == [0, 2, 1]


@pytest.mark.parametrize("policy", ["agenda", "critical_path"])
def test_no_nodes_need_no_launches(policy):
    builder = GraphBuilder(SCHEMA)
    (plan,) = build_schedule(builder.build(), [Up()], policy).passes
    assert plan.groups == ()
