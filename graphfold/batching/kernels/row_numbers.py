"""Numbers that tell rows apart, and classes of equal ones. Nothing is hashed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, run_numbers, stable_order

#: Numbers are combined into one as long as it stays below this.
_MOST = 1 << 62

#: A table of as many entries finds equal keys in a third of the time of sorting them.
_TABLE = 1 << 20


class Numbers(NamedTuple):
    """One number per row, from 0 to below `size`; equal numbers mean equal rows."""

    value: IntArray
    size: int

    def at(self, rows: IntArray) -> Numbers:
        """The numbers of some rows."""
        return Numbers(self.value[rows], self.size)


def first_equal(keys: Iterable[Numbers]) -> IntArray:
    """[num_rows] the first of the rows that have the keys of each row, itself if it is that."""
    key, size = _combined(keys)
    if size <= _TABLE:
        table = np.empty(size, dtype=np.int64)
        # Of rows with equal keys, the one written last stays.
        table[key[::-1]] = np.arange(len(key) - 1, -1, -1)
        return table[key]
    order = stable_order(key)
    key = key[order]
    is_first = np.ones(len(key), dtype=bool)
    is_first[1:] = key[1:] != key[:-1]
    first = np.empty_like(order)
    first[order] = order[is_first][is_first.cumsum() - 1]
    return first


def node_numbers(dag: TypedDAG) -> Numbers:
    """A number per node that tells its type and its features."""
    op_type = dag.op_type.numpy()
    parts = []
    for index, node_type in enumerate(dag.schema.types):
        columns = dag.features(node_type.name).values()
        num_rows = int(np.count_nonzero(op_type == index))
        parts.append(row_numbers((column.numpy() for column in columns), num_rows))
    joined, value = _joined(parts), np.empty_like(op_type)
    value[stable_order(op_type)] = joined.value
    return Numbers(value, joined.size)


def edge_numbers(dag: TypedDAG, spaces: Sequence[str]) -> Numbers:
    """A number per edge that tells its columns, a self-loop, and its space, which are in turn."""
    return _joined([_numbers_of_space(dag, space) for space in spaces])


def _numbers_of_space(dag: TypedDAG, space: str) -> Numbers:
    columns = [column.numpy() for column in dag.columns[space].values()]
    loops = None if space == "inputs" else self_loops(dag, space.removeprefix("relation:"))
    return row_numbers(columns if loops is None else [*columns, loops], dag.num_rows(space))


def self_loops(dag: TypedDAG, relation: str) -> IntArray | None:
    """[num_edges] 1 where an edge leads from a node to itself, else 0; None if none does."""
    edges = dag.relations[relation]
    loops = edges.index.numpy() == run_numbers(edges.ptr.numpy())
    return loops.astype(np.int64) if loops.any() else None


def _joined(parts: Sequence[Numbers]) -> Numbers:
    """The numbers of rows of several kinds in turn; rows of different kinds are not equal."""
    values, total = [np.zeros(0, dtype=np.int64)], 0
    for own in parts:
        if total + own.size > _MOST:
            own = _renumbered(own)
        values.append(own.value + total)
        total += own.size
    return Numbers(np.concatenate(values), total)


def row_numbers(columns: Iterable[npt.NDArray[Any]], num_rows: int) -> Numbers:
    """A number per row that tells the row's values in all columns."""
    found = [_column_numbers(column) for column in columns if num_rows]
    return _combined(found) if found else Numbers(np.zeros(num_rows, dtype=np.int64), 1)


def _combined(keys: Iterable[Numbers]) -> Numbers:
    """One number per row that encodes the numbers of all keys, at least one."""
    keys = iter(keys)
    found = next(keys)
    for key in keys:
        if found.size * key.size > _MOST:
            found, key = _renumbered(found), _renumbered(key)
        found = Numbers(found.value * key.size + key.value, found.size * key.size)
    return found


def _renumbered(numbers: Numbers) -> Numbers:
    """Renumbers keys so that there are at most as many numbers as rows."""
    found, value = np.unique(numbers.value, return_inverse=True)
    return Numbers(value, len(found))


def _column_numbers(column: npt.NDArray[Any]) -> Numbers:
    if column.ndim == 1 and column.dtype.kind in "bui":
        low, high = int(column.min()), int(column.max())
        if high - low < _MOST:
            return Numbers(column.astype(np.int64) - low, high - low + 1)
    return _byte_numbers(column)


def _byte_numbers(rows: npt.NDArray[Any]) -> Numbers:
    """A number per row of any dtype and shape: which of the distinct rows it is."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    whole = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize))).reshape(-1)
    found, number = np.unique(whole, return_inverse=True)
    return Numbers(number.reshape(-1).astype(np.int64), len(found))


class Classes(NamedTuple):
    """Nodes in classes of equal ones; the first node of each class represents it."""

    representative: IntArray  # [num_classes] ascending
    inverse: IntArray  # [num_nodes] the class of each node

    @staticmethod
    def of_first(first: IntArray) -> Classes:
        """From the first of the nodes that each node equals."""
        is_first = first == np.arange(len(first))
        return Classes(is_first.nonzero()[0], (is_first.cumsum() - 1)[first])

    @staticmethod
    def of_equal(numbers: Numbers) -> Classes:
        """The classes of rows with equal numbers."""
        return Classes.of_first(first_equal([numbers]))

    @property
    def first(self) -> IntArray:
        """[num_nodes] the first of the nodes that each node equals."""
        return self.representative[self.inverse]

    @property
    def are_single(self) -> bool:
        """True if no two nodes are equal."""
        return len(self.representative) == len(self.inverse)

    @property
    def numbers(self) -> Numbers:
        """The class of each node, as a number that must agree."""
        return Numbers(self.inverse, len(self.representative))

    def among(self, nodes: IntArray) -> Classes:
        """The classes of some nodes alone, renumbered."""
        return Classes.of_equal(self.numbers.at(nodes))
