"""Sources: the nodes whose inputs cells read, and the order of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold.batching.kernels.gather import RowIndex
from graphfold.batching.scheduling.deduplicate import EqualNodes
from graphfold.dag.depth import IntArray, count_pointers, run_pointers, stable_order


class Sources(NamedTuple):
    """The nodes of one type that stand for all nodes of the type with the same features."""

    node: Tensor  # [num_sources] int64, numbered within the type
    of: Tensor  # [num_nodes_of_type] int64, the position in `node` of the one with equal features


@dataclass(frozen=True, eq=False)
class CellInputs:
    """The row of `x` that each node is given; every type has an `x` of its own."""

    op_type: IntArray  # [num_nodes]
    # [num_nodes] the row of each node in the `x` of its type; None for the nodes' own, in order.
    row: IntArray | None
    sizes: IntArray  # [num_types] how many rows each `x` has

    @cached_property
    def by_type(self) -> tuple[IntArray, IntArray]:
        """The nodes of type 0, of type 1, ..., and [num_types + 1] where each type begins."""
        return stable_order(self.op_type), self._ptr

    @cached_property
    def _ptr(self) -> IntArray:
        """[num_types + 1] where the nodes of each type begin, sorted by type."""
        if self.row is None:
            return run_pointers(self.sizes)
        return count_pointers(self.op_type, len(self.sizes))

    @cached_property
    def in_type_order(self) -> tuple[RowIndex | None, ...]:
        """`in_order` of the nodes `by_type`."""
        if self.row is None:
            return (None,) * len(self.sizes)
        return self.in_order(self.by_type[0])

    def in_order(self, node: IntArray) -> tuple[RowIndex | None, ...]:
        """By type, the row of `x` that each of its nodes reads; None for all rows in order.

        Args:
            node: all nodes, sorted by type.
        """
        ptr = self._ptr
        row = _numbers(self.op_type, *self.by_type) if self.row is None else self.row
        rows, size = row[node], ptr[1:] - ptr[:-1]
        moved = run_pointers(rows != np.arange(len(rows)) - ptr[:-1].repeat(size))[ptr]
        is_whole = (size == self.sizes) & (moved[1:] == moved[:-1])
        parts = zip(_split(rows, ptr), is_whole.tolist(), strict=True)
        return tuple(None if whole else RowIndex(torch.from_numpy(part)) for part, whole in parts)


def find_sources(
    op_type: IntArray, sizes: IntArray, equal: EqualNodes
) -> tuple[tuple[Sources, ...], CellInputs]:
    """The sources of each type, and which of them each class of equal nodes is given.

    Args:
        op_type: [num_nodes] the type of each node.
        sizes: [num_types] how many nodes each type has.
        equal: the nodes that are equal.
    """
    kept = equal.final.representative
    node = kept[equal.own.representative]
    order, ptr = stable_order(op_type), run_pointers(sizes)
    is_source = np.zeros(len(op_type), dtype=bool)
    is_source[node] = True
    nodes = [own.nonzero()[0] for own in _split(is_source[order], ptr)]
    own_type, own_sizes = op_type[node], np.array([*map(len, nodes)], np.int64)
    row = _numbers(own_type, stable_order(own_type), run_pointers(own_sizes))
    row = row[equal.own.inverse]
    of = _split(row[equal.final.inverse[order]], ptr)
    found = (Sources(*map(torch.from_numpy, own)) for own in zip(nodes, of, strict=True))
    return tuple(found), CellInputs(op_type[kept], row, own_sizes)


def _numbers(op_type: IntArray, order: IntArray, ptr: IntArray) -> IntArray:
    """[num_nodes] how many nodes before each are of its type; see `CellInputs.by_type`."""
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    number -= ptr[op_type]
    return number


def _split(column: IntArray, ptr: IntArray) -> list[IntArray]:
    """The part of each type."""
    return [column[start:stop] for start, stop in pairwise(ptr.tolist())]
