"""Routes: which group of a pass reads which, found for all edges at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphfold.batching.scheduling.pass_schedule import PassSchedule


@dataclass(frozen=True)
class Routes:
    """The edges of a pass by the group that is read, and by the group that reads.

    A group is named by its first row; row 0, what absent children read, is a source by itself. Only
    pairs of a source and a reader are listed in Python, at most as many as there are edges.
    """

    counts: dict[int, dict[int, int]]  # source -> reader -> how many of its edges read the source
    sources: dict[int, list[int]]  # reader -> what it reads, in row order
    index: dict[int, Tensor]  # source -> [num_read] the rows that are read, from 0, by reader
    order: dict[int, Tensor]  # reader -> [num_child_edges] where each is among them by source


def find_routes(plan: PassSchedule) -> Routes:
    """The routes of a plan; a GPU is asked for their numbers once."""
    names = [0, *(group.start for group in plan.groups)]
    first = plan.child_row.new_tensor(names)
    source = torch.searchsorted(first, plan.child_row, right=True) - 1
    reader = _readers(plan)
    key = source * len(names) + reader
    by_source = torch.argsort(key, stable=True)
    pairs, count = torch.unique_consecutive(key[by_source], return_counts=True)
    counts: dict[int, dict[int, int]] = {}
    sources: dict[int, list[int]] = {}
    for pair, number in torch.stack([pairs, count], 1).tolist():
        read, reads = (names[number] for number in divmod(pair, len(names)))
        counts.setdefault(read, {})[reads] = number
        sources.setdefault(reads, []).append(read)
    sizes = [sum(own.values()) for own in counts.values()]
    index = (plan.child_row - first[source])[by_source].split_with_sizes(sizes)
    order = plan.split_edges(_places(plan, source, reader))
    return Routes(counts, sources, dict(zip(counts, index, strict=True)), order)


def _readers(plan: PassSchedule) -> Tensor:
    """[num_edges] the number of the group that reads, from 1 on; each group's edges are a slice."""
    stop = plan.child_row.new_tensor([0, *(group.edge_stop for group in plan.groups)])
    edges = torch.arange(len(plan.child_row), device=stop.device)
    return torch.searchsorted(stop, edges, right=True)


def _places(plan: PassSchedule, source: Tensor, reader: Tensor) -> Tensor:
    """[num_edges] where each edge is among those of its group, sorted by what they read."""
    order = torch.argsort(reader * (len(plan.groups) + 1) + source, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    start = plan.child_row.new_tensor([0, *(group.edge_start for group in plan.groups)])
    return place - start[reader]
