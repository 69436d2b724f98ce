"""Filling: padding nodes at the levels of passes up and down, so that groups have set sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphfold.batching.scheduling.edges import Edges
from graphfold.batching.scheduling.passes import Pass
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, run_numbers, run_pointers, stable_order

#: What is counted: the space of a relation; or ("level", PASS) and ("reads", PASS), the nodes and
#: the edges of each level of a pass, which is a number.
Kind: TypeAlias = str | tuple[str, int | None]

#: (kind, op type, level or op type that is read) -> how many there are.
Sizes: TypeAlias = "Counter[tuple[Kind, int, int]]"

#: The nodes of graphs and their inputs, as if they were one level.
NODES: Kind = ("level", None)
INPUTS: Kind = ("reads", None)


@dataclass(frozen=True)
class Filling:
    """The levels of padding nodes in passes up and down, in which they read absent children.

    Args:
        dag: the graphs, those of padding last.
        depths: number of a pass -> [num_nodes_without_padding] the level of each node.
        left: how many padding nodes, `("level", PASS)`, each level has, and how many edges,
            `("reads", PASS)`; of `NODES` how many there are.
    """

    dag: TypedDAG
    depths: Mapping[int, IntArray]
    left: Sizes

    @cached_property
    def real(self) -> tuple[Tensor, ...]:
        """By op type, [num_nodes_of_type, 1] 1 for nodes of graphs and 0 for those of padding."""
        found = []
        for t, count in enumerate(self.dag.num_nodes_by_type):
            real = torch.ones(count, 1, device="cpu")
            real[count - self.left[NODES, t, 0] :] = 0
            found.append(real)
        return tuple(found)

    def fill(self, number: int, item: Pass, edges: Edges) -> tuple[Edges, IntArray]:
        """The edges of a pass, those of padding its own, and [num_nodes] the level of each node.

        Args:
            number: of the pass.
            item: the pass.
            edges: what nodes read in it.
        """
        levels = numbers_of(self.left, ("level", number))
        size = np.array([count for _, _, count in levels])
        reads = [self.left[("reads", number), t, level] for t, level, _ in levels]
        begin, depth = len(self.depths[number]), np.array([level for _, level, _ in levels])
        order = stable_order(self.dag.op_type.numpy()[begin:])  # by type, as levels are
        own_depth, count = np.empty_like(order), np.empty_like(order)
        own_depth[order], count[order] = depth.repeat(size), spread(reads, size)
        first, total = int(edges.ptr[begin]), sum(reads)
        ptr = np.append(edges.ptr[:begin], first + run_pointers(count))
        last = self.dag.num_rows(item.spaces[0]) - 1  # any edge: it gets no gradient from here
        child = np.append(edges.child[:first], np.full(total, -1))
        number_of = np.append(edges.number[:first], np.full(total, last))
        filled = Edges(ptr, child, run_numbers(ptr), number_of)
        return filled, np.append(self.depths[number], own_depth)


def numbers_of(sizes: Sizes, kind: Kind) -> list[tuple[int, int, int]]:
    """(op type, level or other op type, how many) of one kind, in order."""
    return sorted((t, other, n) for (own, t, other), n in sizes.items() if own == kind)


def spread(totals: npt.ArrayLike, counts: npt.ArrayLike) -> IntArray:
    """[sum of counts] for each total so many numbers with that sum, as equal as can be."""
    total, count = np.atleast_1d(totals, counts)
    position = np.arange(count.sum()) - run_pointers(count)[:-1].repeat(count)
    share, rest = np.divmod(total, count)
    numbers: IntArray = share.repeat(count) + (position < rest.repeat(count))
    return numbers
