"""Policies: which nodes run together.

A policy gives every node a step. Nodes of one step and one type form a group, which is one call of
the cell; every node's step comes after the steps of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graphfold.dag.depth import (
    IntArray,
    count_pointers,
    longest_path,
    runs,
    sorted_set,
    stable_order,
)
from graphfold.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class PassGraph:
    """The graph as one pass sees it: edges from what is read to what reads."""

    op_type: IntArray  # [num_nodes]
    depth: IntArray  # [num_nodes] longest path from a node that reads nothing
    child: IntArray  # [num_edges] the node read, without absent slots
    parent: IntArray  # [num_edges] the node that reads

    @property
    def num_nodes(self) -> int:
        return len(self.op_type)


Policy = Callable[[PassGraph], IntArray]


def by_depth(graph: PassGraph) -> IntArray:
    """Nodes as early as possible: all of one depth together."""
    return graph.depth


def by_height(graph: PassGraph) -> IntArray:
    """Nodes as late as possible: by the longest path to a node that nobody reads."""
    height = longest_path(graph.num_nodes, source=graph.parent, target=graph.child)
    step: IntArray = height.max(initial=0) - height
    return step


def by_agenda(graph: PassGraph) -> IntArray:
    """All ready nodes of the type whose nodes have the lowest mean depth, again and again.

    The agenda of DyNet: Neubig et al. (2017), https://arxiv.org/abs/1705.07860, section 3.3.
    """
    num_types = int(graph.op_type.max(initial=-1)) + 1
    count = np.bincount(graph.op_type, minlength=num_types)
    total_depth = np.bincount(graph.op_type, weights=graph.depth, minlength=num_types)
    mean_depth = total_depth / np.maximum(count, 1)
    reader = graph.parent[stable_order(graph.child)]
    ptr = count_pointers(graph.child, graph.num_nodes)
    waiting = np.bincount(graph.parent, minlength=graph.num_nodes)
    ready: list[list[IntArray]] = [[] for _ in range(num_types)]
    _add_ready(ready, np.flatnonzero(waiting == 0), graph.op_type)
    step = np.zeros(graph.num_nodes, dtype=np.int64)
    launch = 0
    while any(ready):
        chosen = min((t for t in range(num_types) if ready[t]), key=lambda t: mean_depth[t])
        nodes = np.concatenate(ready[chosen])
        ready[chosen] = []
        step[nodes] = launch
        launch += 1
        reached = reader[runs(ptr[nodes], ptr[nodes + 1])]
        np.subtract.at(waiting, reached, 1)
        _add_ready(ready, sorted_set(reached[waiting[reached] == 0]), graph.op_type)
    return step


def one_by_one(graph: PassGraph) -> IntArray:
    """Every node alone, in order of depth."""
    step = np.empty(graph.num_nodes, dtype=np.int64)
    step[np.argsort(graph.depth, kind="stable")] = np.arange(graph.num_nodes)
    return step


POLICIES: Mapping[str, Policy] = {
    "depth": by_depth,
    "height": by_height,
    "agenda": by_agenda,
    "one_by_one": one_by_one,
}


def get_policy(name: str) -> Policy:
    """The policy called `name`; raises ConfigError with the nearest name if there is none."""
    if name not in POLICIES:
        hint = did_you_mean(name, POLICIES)
        raise ConfigError(f"there is no policy '{name}'.{hint} Use one of {', '.join(POLICIES)}.")
    return POLICIES[name]


def _add_ready(ready: list[list[IntArray]], nodes: IntArray, op_type: IntArray) -> None:
    for index in np.unique(op_type[nodes]):
        ready[index].append(nodes[op_type[nodes] == index])
