"""Policies: which nodes run together.

A policy gives every node a step. Nodes of one step and one type form a group, which is one call of
the cell; every node's step comes after the steps of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from graphfold.batching.scheduling.edges import Edges
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
    """The graph of one pass: edges lead from what is read to what reads."""

    op_type: IntArray  # [num_nodes]
    depth: IntArray  # [num_nodes] longest path from a node that reads nothing
    edges: Edges  # between these nodes

    @property
    def num_nodes(self) -> int:
        return len(self.op_type)

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """The nodes that are read and those that read, without absent slots, [num_edges] each."""
        return self.edges.present()


Policy = Callable[[PassGraph], IntArray]


def by_depth(graph: PassGraph) -> IntArray:
    """Nodes as early as possible: all of one depth together."""
    return graph.depth


def by_agenda(graph: PassGraph) -> IntArray:
    """Runs all ready nodes of the type with the lowest mean depth, until none is left.

    The agenda of DyNet: Neubig et al. (2017), https://arxiv.org/abs/1705.07860, section 3.3.
    """
    count = np.bincount(graph.op_type)
    total_depth = np.bincount(graph.op_type, weights=graph.depth)
    mean_depth = total_depth / np.maximum(count, 1)
    return _launch(graph, lambda nodes, op_type: -float(mean_depth[op_type]))


def by_critical_path(graph: PassGraph) -> IntArray:
    """All ready nodes of the type that has the node with the longest path ahead, again and again.

    Of several such types, the one with the most ready nodes. With one type of inner node it equals
    `by_depth`; with several it needs fewer launches, for it lets a type's nodes gather while
    another type runs: 47 where `by_depth` needs 85 and no schedule fewer than 33 (128 trees of the
    Penn Treebank, a type for each frequent label). The table of ED-Batch (Chen et al., 2023,
    https://arxiv.org/abs/2302.03851), learned offline to the same end, came to 64.
    """
    child, parent = graph.ends
    height = longest_path(graph.num_nodes, source=parent, target=child)
    return _launch(graph, lambda nodes, op_type: float(height[nodes].max()))


def one_by_one(graph: PassGraph) -> IntArray:
    """Every node alone, in order of depth."""
    step = np.empty(graph.num_nodes, dtype=np.int64)
    step[np.argsort(graph.depth, kind="stable")] = np.arange(graph.num_nodes)
    return step


POLICIES: Mapping[str, Policy] = {
    "depth": by_depth,
    "agenda": by_agenda,
    "critical_path": by_critical_path,
    "one_by_one": one_by_one,
}


def get_policy(name: str) -> Policy:
    """The policy called `name`; raises ConfigError with the nearest name for others."""
    if name not in POLICIES:
        hint = did_you_mean(name, POLICIES)
        raise ConfigError(f"there is no policy '{name}'.{hint} Use one of {', '.join(POLICIES)}.")
    return POLICIES[name]


@dataclass
class _Ready:
    """The nodes of one type that nothing holds up any more."""

    urgency: float
    count: int = 0
    pieces: list[IntArray] = field(default_factory=list)


def _launch(graph: PassGraph, urgency: Callable[[IntArray, int], float]) -> IntArray:
    """[num_nodes] the launch of each node, if the most urgent type runs whenever it is ready.

    Args:
        graph: the graph.
        urgency: of some nodes that have become ready, and their type; a type has that of its most
            urgent ones. Of equally urgent types the one with the most ready nodes runs.
    """
    child, parent = graph.ends
    reader = parent[stable_order(child)]
    ptr = count_pointers(child, graph.num_nodes)
    waiting = np.bincount(parent, minlength=graph.num_nodes)
    step = np.zeros(graph.num_nodes, dtype=np.int64)
    ready: dict[int, _Ready] = {}
    reached, launch = np.flatnonzero(waiting == 0), 0
    while True:
        for nodes, op_type in _by_type(reached, graph.op_type):
            own = ready.setdefault(op_type, _Ready(-np.inf))
            own.urgency = max(own.urgency, urgency(nodes, op_type))
            own.count += len(nodes)
            own.pieces.append(nodes)
        if not ready:
            return step
        chosen = max(sorted(ready), key=lambda op_type: _order(ready[op_type]))
        nodes = np.concatenate(ready.pop(chosen).pieces)
        step[nodes] = launch
        launch += 1
        reached = reader[runs(ptr[nodes], ptr[nodes + 1])]
        np.subtract.at(waiting, reached, 1)
        reached = sorted_set(reached[waiting[reached] == 0])


def _order(ready: _Ready) -> tuple[float, int]:
    return ready.urgency, ready.count


def _by_type(nodes: IntArray, op_type: IntArray) -> Iterator[tuple[IntArray, int]]:
    types = op_type[nodes]
    for index in np.flatnonzero(np.bincount(types)).tolist():
        yield nodes[types == index], index
