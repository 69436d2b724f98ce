"""Sharing: which nodes of a batch must come to the same state, so that one stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, count_pointers, stable_order

#: Numbers are combined into one as long as it stays below this.
_MOST = 1 << 62

#: A table of as many entries finds equal keys in a third of the time of sorting them.
_TABLE = 1 << 20


class Distinct(NamedTuple):
    """The nodes that differ, and which of them each node equals."""

    node: IntArray  # [num_distinct] the first node of each kind, ascending
    of: IntArray  # [num_nodes] position in `node` of the one that each node equals

    def among(self, nodes: IntArray) -> Distinct:
        """The same of some nodes alone, numbered anew."""
        same_as = np.arange(len(nodes))
        merge_equal(same_as.copy(), [Numbers(self.of[nodes], len(self.node))], same_as)
        return distinct_nodes(same_as)


class Numbers(NamedTuple):
    """One number per row, from 0 to below `size`; equal numbers mean equal rows."""

    value: IntArray
    size: int


def find_distinct(dag: TypedDAG, differing: Distinct) -> Distinct:
    """The nodes that differ on the way up.

    Two nodes are equal if they have the same type, the same features, and, in the same order, equal
    inputs over edges with the same columns. Columns are compared bit by bit; nothing is hashed.

    A node can have an equal only if each of its inputs has one, or has another reader: if it is
    followed. So this goes up level by level, looks at the nodes whose inputs are all followed, and
    ends above a level where none is: in a batch of trees that differ, far below the roots.

    Args:
        dag: the graphs.
        differing: what `find_differing` says of them.
    """
    ptr, child, depth = dag.input_ptr.numpy(), dag.input_index.numpy(), dag.depth.numpy()
    node, edge = Numbers(differing.of, len(differing.node)), _edge_numbers(dag)
    # An absent input is -1 and finds the last entry of both: it differs from all, and is followed.
    same_as = np.arange(dag.num_nodes + 1)
    is_followed = np.append(np.bincount(child + 1, minlength=dag.num_nodes + 1)[1:] > 1, True)
    last_read_twice = depth[is_followed[:-1]].max(initial=-1)
    for index, level in enumerate(_levels(depth)):
        for nodes, slots in _by_arity(level, ptr):
            if len(slots):
                may_equal = is_followed[child[slots]].all(0)
                nodes, slots = nodes[may_equal], slots[:, may_equal]
            if len(nodes) > 1:
                merge_equal(nodes, _keys(nodes, slots, child, node, edge, same_as), same_as)
        merged = level[same_as[level] != level]
        is_followed[merged] = is_followed[same_as[merged]] = True
        if len(merged) == 0 and index > last_read_twice:
            break
    return distinct_nodes(same_as[:-1])


def _levels(depth: IntArray) -> Iterator[IntArray]:
    """The nodes of each depth, in order."""
    order = stable_order(depth)
    bounds = count_pointers(depth, 0).tolist()
    return (order[start:stop] for start, stop in pairwise(bounds))


def _by_arity(nodes: IntArray, ptr: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """The nodes of each arity, and their inputs, [arity, num_nodes]."""
    count = ptr[nodes + 1] - ptr[nodes]
    for arity in np.bincount(count).nonzero()[0].tolist():
        own = nodes[count == arity]
        yield own, ptr[own] + np.arange(arity)[:, None]


def distinct_nodes(same_as: IntArray) -> Distinct:
    """From the first of the nodes that each node equals."""
    is_first = same_as == np.arange(len(same_as))
    return Distinct(is_first.nonzero()[0], (is_first.cumsum() - 1)[same_as])


def find_differing(dag: TypedDAG) -> Distinct:
    """The nodes that differ by themselves: in type or features."""
    same_as = np.arange(dag.num_nodes)
    merge_equal(np.arange(dag.num_nodes), [node_numbers(dag)], same_as)
    return distinct_nodes(same_as)


def merge_equal(nodes: IntArray, keys: Iterable[Numbers], same_as: IntArray) -> None:
    """Sets `same_as` of nodes with equal keys to the first of them; `nodes` ascend."""
    key, size = _combined(keys)
    if size <= _TABLE:
        first = np.empty(size, dtype=np.int64)
        first[key[::-1]] = nodes[::-1]  # of nodes with equal keys, the one written last stays
        same_as[nodes] = first[key]
        return
    order = stable_order(key)
    key, nodes = key[order], nodes[order]
    is_first = np.ones(len(key), dtype=bool)
    is_first[1:] = key[1:] != key[:-1]
    same_as[nodes] = nodes[is_first][is_first.cumsum() - 1]


def _keys(
    nodes: IntArray,
    slots: IntArray,
    child: IntArray,
    node: Numbers,
    edge: Numbers,
    same_as: IntArray,
) -> Iterator[Numbers]:
    """What must agree for nodes of one arity to be equal; `slots` are their inputs."""
    yield Numbers(node.value[nodes], node.size)
    for slot in slots:
        yield Numbers(same_as[child[slot]], len(same_as))
        if edge.size > 1:
            yield Numbers(edge.value[slot], edge.size)


def _combined(keys: Iterable[Numbers]) -> Numbers:
    """A number per row that tells the numbers of all keys; there is at least one."""
    keys = iter(keys)
    found = next(keys)
    for key in keys:
        if found.size * key.size > _MOST:
            found, key = _renumbered(found), _renumbered(key)
        found = Numbers(found.value * key.size + key.value, found.size * key.size)
    return found


def _renumbered(numbers: Numbers) -> Numbers:
    """The same with as few numbers as rows, or fewer."""
    found, value = np.unique(numbers.value, return_inverse=True)
    return Numbers(value, len(found))


def node_numbers(dag: TypedDAG) -> Numbers:
    """A number per node that tells its type and its features."""
    op_type = dag.op_type.numpy()
    value, total = np.empty_like(op_type), 0
    for index, node_type in enumerate(dag.schema.types):
        columns = dag.features(node_type.name).values()
        nodes = (op_type == index).nonzero()[0]
        own = row_numbers((column.numpy() for column in columns), len(nodes))
        if total + own.size > _MOST:
            own = _renumbered(own)
        value[nodes] = own.value + total
        total += own.size
    return Numbers(value, total)


def _edge_numbers(dag: TypedDAG) -> Numbers:
    """A number per input that tells its columns."""
    columns = dag.columns["inputs"].values()
    return row_numbers((column.numpy() for column in columns), dag.num_inputs)


def row_numbers(columns: Iterable[npt.NDArray[Any]], num_rows: int) -> Numbers:
    """A number per row that tells the row's values in all columns."""
    found = [_column_numbers(column) for column in columns if num_rows]
    return _combined(found) if found else Numbers(np.zeros(num_rows, dtype=np.int64), 1)


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
