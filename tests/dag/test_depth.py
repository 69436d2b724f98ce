"""Depth against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from engine_cells import random_dag

from graphfold.dag import compute_depth, depth, to_networkx
from graphfold.dag.collate import split
from graphfold.dag.depth import input_edges, longest_path, stable_order


def longest_to(graph: nx.DiGraph) -> dict[int, int]:
    length: dict[int, int] = {}
    for node in nx.topological_sort(graph):
        length[node] = max((length[p] + 1 for p in graph.predecessors(node)), default=0)
    return length


@pytest.mark.parametrize("small", [0, depth.SMALL])
@pytest.mark.parametrize("seed", range(8))
def test_depths_are_longest_paths(seed, small, monkeypatch):
    monkeypatch.setattr(depth, "SMALL", small)  # all graphs by array steps, or all in Python
    for dag in split(random_dag(3, seed)):
        inputs = nx.DiGraph(
            [(s, t) for s, t, kind in to_networkx(dag).edges(data="kind") if kind == "inputs"]
        )
        inputs.add_nodes_from(range(dag.num_nodes))
        up, down = longest_to(inputs), longest_to(inputs.reverse())
        assert compute_depth(dag.input_ptr, dag.input_index).tolist() == [
            up[node] for node in range(dag.num_nodes)
        ]
        child, parent = input_edges(dag.input_ptr, dag.input_index)
        heights = longest_path(dag.num_nodes, source=parent, target=child)
        assert heights.tolist() == [down[node] for node in range(dag.num_nodes)]


@pytest.mark.parametrize("small", [0, depth.SMALL])
def test_nodes_behind_a_cycle_have_no_longest_path(small, monkeypatch):
    monkeypatch.setattr(depth, "SMALL", small)
    source, target = np.array([[0, 1], [1, 2], [2, 1], [2, 3], [4, 5], [4, 5]]).T
    assert depth.longest_path(6, source, target).tolist() == [0, -1, -1, -1, 0, 1]


@pytest.mark.parametrize("most", [1, 1 << 16, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("size", [0, 1, 500])
def test_equal_keys_keep_their_order(most, size):
    rng = np.random.default_rng(0)
    few = rng.integers(0, most, 40)
    for key in (few[rng.integers(0, 40, size)], rng.integers(0, most, size)):
        want = sorted(range(size), key=lambda i, key=key: key[i])
        assert stable_order(key).tolist() == want
