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
    row: IntArray  # [num_nodes] the row of each node in the `x` of its type
    sizes: IntArray  # [num_types] how many rows each `x` has

    @staticmethod
    def of_nodes(op_type: IntArray, num_types: int) -> CellInputs:
        """Every node has a row of its own, in node order."""
        order, ptr = _sorted_by_type(op_type, num_types)
        return CellInputs(op_type, _numbers(op_type, order, ptr), ptr[1:] - ptr[:-1])

    @cached_property
    def by_type(self) -> tuple[IntArray, IntArray]:
        """The nodes of type 0, of type 1, ..., and [num_types + 1] where each type begins."""
        return stable_order(self.op_type), self._ptr

    @cached_property
    def _ptr(self) -> IntArray:
        """[num_types + 1] where the nodes of each type begin, sorted by type."""
        return count_pointers(self.op_type, len(self.sizes))

    @cached_property
    def in_type_order(self) -> tuple[RowIndex | None, ...]:
        """`in_order` of the nodes `by_type`."""
        return self.in_order(self.by_type[0])

    def in_order(self, node: IntArray) -> tuple[RowIndex | None, ...]:
        """By type, the row of `x` that each of its nodes reads; None for all rows in order.

        Args:
            node: all nodes, sorted by type.
        """
        ptr = self._ptr
        rows, size = self.row[node], ptr[1:] - ptr[:-1]
        moved = run_pointers(rows != np.arange(len(rows)) - ptr[:-1].repeat(size))[ptr]
        is_whole = (size == self.sizes) & (moved[1:] == moved[:-1])
        parts = zip(_split(rows, ptr), is_whole.tolist(), strict=True)
        return tuple(None if whole else RowIndex(torch.from_numpy(part)) for part, whole in parts)


def find_sources(
    op_type: IntArray, num_types: int, equal: EqualNodes
) -> tuple[tuple[Sources, ...], CellInputs]:
    """The sources of each type, and which of them each class of equal nodes is given.

    Args:
        op_type: [num_nodes] the type of each node.
        num_types: how many types the schema has.
        equal: the nodes that are equal.
    """
    node, inverse = equal.own
    order, ptr = _sorted_by_type(op_type, num_types)
    number = _numbers(op_type, order, ptr)
    own_order, own_ptr = _sorted_by_type(op_type[node], num_types)
    row = _numbers(op_type[node], own_order, own_ptr)[inverse]
    nodes, of = _split(number[node[own_order]], own_ptr), _split(row[order], ptr)
    found = (Sources(*map(torch.from_numpy, own)) for own in zip(nodes, of, strict=True))
    kept = equal.final.representative
    return tuple(found), CellInputs(op_type[kept], row[kept], own_ptr[1:] - own_ptr[:-1])


def _sorted_by_type(op_type: IntArray, num_types: int) -> tuple[IntArray, IntArray]:
    """The nodes of type 0, of type 1, ..., and [num_types + 1] where each type begins."""
    return stable_order(op_type), count_pointers(op_type, num_types)


def _numbers(op_type: IntArray, order: IntArray, ptr: IntArray) -> IntArray:
    """[num_nodes] how many nodes before each are of its type, from `_sorted_by_type`."""
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    number -= ptr[op_type]
    return number


def _split(column: IntArray, ptr: IntArray) -> list[IntArray]:
    """The part of each type."""
    return [column[start:stop] for start, stop in pairwise(ptr.tolist())]
