"""Depth of nodes, level by level, and the cycle that makes it impossible."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.errors import GraphError

IntArray: TypeAlias = npt.NDArray[np.int64]

#: With fewer nodes and edges, steps in Python take less time than array steps for each level.
SMALL = 500

#: The positions of up to so many different keys are found faster than all keys are sorted.
FEW = 4


def compute_depth(input_ptr: Tensor, input_index: Tensor) -> Tensor:
    """[num_nodes] the longest path from a node without inputs (0 there).

    Args:
        input_ptr: [num_nodes + 1] where each node's inputs begin.
        input_index: [num_inputs] the inputs; -1 for an absent slot.

    Raises:
        GraphError: if the inputs have a cycle; the message names its nodes.
    """
    child, parent = input_edges(input_ptr, input_index)
    num_nodes = len(input_ptr) - 1
    depth = longest_path(num_nodes, source=child, target=parent)
    if (depth < 0).any():
        cycle = find_cycle(child, parent, depth < 0)
        path = " -> ".join(str(node) for node in [*cycle, cycle[0]])
        raise GraphError(
            f"graph has a cycle through nodes {path}, so no level can hold them. "
            "Unroll it into steps first.",
            cycle=cycle,
        )
    return torch.from_numpy(depth)


def input_edges(input_ptr: Tensor, input_index: Tensor) -> tuple[IntArray, IntArray]:
    """(child, parent) of every present input, in input order."""
    ptr, child = input_ptr.numpy(), input_index.numpy()
    parent = run_numbers(ptr)
    present = child >= 0
    return (child, parent) if present.all() else (child[present], parent[present])


def longest_path(num_nodes: int, source: IntArray, target: IntArray) -> IntArray:
    """[num_nodes] the longest path that ends in each node; -1 for nodes that a cycle blocks.

    Kahn's algorithm, one array step per level: the work of a level is that of its own edges.
    """
    if num_nodes + len(source) < SMALL:
        return _longest_path_of_few(num_nodes, source.tolist(), target.tolist())
    order = stable_order(source)
    successor = target[order]
    ptr = count_pointers(source, num_nodes)
    waiting = np.bincount(target, minlength=num_nodes)
    length = np.full(num_nodes, -1, dtype=np.int64)
    ready = np.flatnonzero(waiting == 0)
    level = 0
    while len(ready):
        length[ready] = level
        reached = successor[runs(ptr[ready], ptr[ready + 1])]
        np.subtract.at(waiting, reached, 1)
        ready = sorted_set(reached[waiting[reached] == 0])
        level += 1
    return length


def _longest_path_of_few(num_nodes: int, source: list[int], target: list[int]) -> IntArray:
    """`longest_path`, one node after another, in the order of their lengths."""
    waiting = [0] * num_nodes
    successors: list[list[int]] = [[] for _ in range(num_nodes)]
    for before, after in zip(source, target, strict=True):
        successors[before].append(after)
        waiting[after] += 1
    ready = [node for node, count in enumerate(waiting) if count == 0]
    length = [-1 if count else 0 for count in waiting]
    for node in ready:  # which grows in the loop
        for after in successors[node]:
            waiting[after] -= 1
            if waiting[after] == 0:
                length[after] = length[node] + 1
                ready.append(after)
    return np.array(length, dtype=np.int64)


def find_cycle(source: IntArray, target: IntArray, blocked: npt.NDArray[np.bool_]) -> list[int]:
    """The nodes of one cycle, each followed by the node that reads it.

    Every blocked node has a blocked predecessor, so walking backwards must come round.
    """
    inside = blocked[source] & blocked[target]
    predecessor = dict(zip(target[inside].tolist(), source[inside].tolist(), strict=True))
    node, seen, path = next(iter(predecessor)), {}, []  # type: ignore[var-annotated]
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = predecessor[node]
    return path[seen[node] :][::-1]


def runs(start: IntArray, stop: IntArray) -> IntArray:
    """The numbers start[i] .. stop[i] - 1 for every i, one run after another."""
    count = stop - start
    ptr = run_pointers(count)
    numbers: IntArray = np.arange(ptr[-1]) + (start - ptr[:-1]).repeat(count)
    return numbers


def spread_runs(start: IntArray, count: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Runs of `count[i]` numbers from start[i] on, one after another.

    Returns:
        [len(count) + 1] where each run begins, and of each number the run, and the number.
    """
    ptr = run_pointers(count)
    run = run_numbers(ptr)
    return ptr, run, np.arange(len(run)) + (start - ptr[:-1])[run]


def run_numbers(ptr: IntArray) -> IntArray:
    """[ptr[-1]] which of the runs that begin at `ptr` each row is in."""
    # By the number of runs that begin at or before it: `repeat` takes four times as long.
    return np.bincount(ptr[1:-1], minlength=ptr[-1])[: ptr[-1]].cumsum()


def stable_order(key: IntArray) -> IntArray:
    """`argsort(key)` where equal keys keep their order; `key` is not negative.

    The positions of a few keys are found key by key. Keys of up to 16 bits are sorted by their
    digits. Longer ones are sorted side by side with their positions, both in one integer, which
    takes a tenth of the time of a stable `argsort`.
    """
    largest = int(key.max(initial=0))
    bits = len(key).bit_length()
    if largest < FEW:
        return np.concatenate([(key == value).nonzero()[0] for value in range(largest + 1)])
    if largest < 1 << 16:
        return key.astype(np.uint16).argsort(kind="stable")
    if largest < 1 << (63 - bits):
        numbered = (key << bits) | np.arange(len(key))
        numbered.sort()
        return numbered & ((1 << bits) - 1)
    return key.argsort(kind="stable")


def count_pointers(numbers: IntArray, size: int) -> IntArray:
    """[size + 1] where the run of each number from 0 to size - 1 begins, once they are sorted."""
    return run_pointers(np.bincount(numbers, minlength=size))


def run_pointers(count: npt.NDArray[Any]) -> IntArray:
    """[n + 1] where each of n consecutive runs begins, from their lengths `count` [n]."""
    ptr = np.zeros(len(count) + 1, dtype=np.int64)
    count.cumsum(out=ptr[1:])
    return ptr


def sorted_set(numbers: IntArray) -> IntArray:
    """Each number once, ascending; for the few numbers of a level faster than `numpy.unique`."""
    numbers = np.sort(numbers)
    keep = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=keep[1:])
    return numbers[keep]
