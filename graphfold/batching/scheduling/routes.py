"""Routes: which group of a pass reads which, found for all edges at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Routes:
    """The edges of a pass by the group that is read, and by the group that reads.

    A group is named by its first row; row 0, what absent children read, is a source by itself. Only
    pairs of a source and a reader are listed in Python, at most as many as there are edges.
    """

    counts: dict[int, dict[int, int]]  # source -> reader -> how many of its edges read the source
    sources: dict[int, list[int]]  # reader -> what it reads, in row order
    index: dict[int, Tensor]  # source -> [num_read] the rows that are read, from 0, by reader
    by_row: dict[int, Tensor]  # source -> [num_read] the order that sorts `index`
    order: dict[int, Tensor]  # reader -> [num_child_edges] where each is among them by source

    @staticmethod
    def split(found: JoinedRoutes, sizes: Mapping[int, int]) -> Routes:
        """The routes of each group.

        Args:
            found: of all groups.
            sizes: reader -> how many edges it has, in row order.
        """
        counts, sources, index, by_row, order = found
        num_read = {source: sum(own.values()) for source, own in counts.items()}
        return Routes(
            counts, sources, _split(index, num_read), _split(by_row, num_read), _split(order, sizes)
        )


#: What `Routes` has, its tensors as those of all groups, one after another.
JoinedRoutes: TypeAlias = tuple[
    dict[int, dict[int, int]], dict[int, list[int]], Tensor, Tensor, Tensor
]


def _split(rows: Tensor, sizes: Mapping[int, int]) -> dict[int, Tensor]:
    return dict(zip(sizes, rows.split_with_sizes(list(sizes.values())), strict=True))


def find_routes(
    groups: Sequence[tuple[int, int, int]], child_row: Tensor, reader_edge: Tensor
) -> JoinedRoutes:
    """The routes of a pass.

    Args:
        groups: of each group, in row order, the first row, the first edge, and how many edges.
        child_row: [num_edges] the row that each edge reads, sorted by the row that reads.
        reader_edge: [num_edges] the edges sorted by the row that they read.
    """
    names = [0, *(start for start, _, _ in groups)]
    first = child_row.new_tensor(names)
    edge_start = child_row.new_tensor([0, *(start for _, start, _ in groups)])
    stop = child_row.new_tensor([0, *(start + count for _, start, count in groups)])
    edges = torch.arange(len(child_row), device=child_row.device)
    source = torch.searchsorted(first, child_row, right=True) - 1
    reader = torch.searchsorted(stop, edges, right=True)
    by_source = torch.argsort(source, stable=True)
    key = (source * len(names) + reader)[by_source]
    pairs, count = torch.unique_consecutive(key, return_counts=True)
    counts: dict[int, dict[int, int]] = {}
    sources: dict[int, list[int]] = {}
    for pair, number in torch.stack([pairs, count], 1).tolist():
        read, reads = (names[number] for number in divmod(pair, len(names)))
        counts.setdefault(read, {})[reads] = number
        sources.setdefault(reads, []).append(read)
    index = (child_row - first[source])[by_source]
    by_row = (
        _inverse(by_source)[reader_edge]
        - torch.searchsorted(source[by_source], source)[reader_edge]
    )
    by_reader = _inverse(by_source[torch.argsort(reader[by_source], stable=True)])
    return counts, sources, index, by_row, by_reader - edge_start[reader]


def _inverse(order: Tensor) -> Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse
