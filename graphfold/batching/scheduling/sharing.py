"""Sharing: which nodes of a batch must come to the same state, so that one stands for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphfold.batching.scheduling.edges import Edges
from graphfold.dag import TypedDAG
from graphfold.dag.depth import IntArray, runs, sorted_set, stable_order

#: Several numbers are packed into one as long as it stays below this.
_MOST = 1 << 62


class Distinct(NamedTuple):
    """The nodes that differ, and which of them each node equals."""

    node: IntArray  # [num_distinct] the first node of each kind, ascending
    of: IntArray  # [num_nodes] position in `node` of the one that each node equals


class Numbers(NamedTuple):
    """One number per row, from 0 to below `size`; equal numbers mean equal rows."""

    value: IntArray
    size: int


def find_distinct(dag: TypedDAG, differing: Distinct | None = None) -> Distinct | None:
    """The nodes that differ on the way up, or None if all do.

    Two nodes are equal if they have the same type, the same features, and, in the same order, equal
    inputs over edges with the same columns. Columns are compared bit by bit; nothing is hashed.

    A node can have an equal only if each of its inputs has one, or has another reader. So this
    begins with the nodes without inputs, goes on to those whose inputs are all such, and ends when
    there are none: in a batch of trees that differ, after a few steps, far below the roots.

    Args:
        dag: the graphs.
        differing: what `find_differing` says of them, if it is known already.
    """
    inputs = Edges.from_csr(dag.input_ptr.numpy(), dag.input_index.numpy())
    readers = inputs.reversed()
    differing = find_differing(dag) if differing is None else differing
    node, edge = Numbers(differing.of, len(differing.node)), _edge_numbers(dag)
    same_as = np.arange(dag.num_nodes)
    is_followed = np.diff(readers.ptr) > 1
    waiting = np.bincount(inputs.present()[1], minlength=dag.num_nodes)
    ready = np.flatnonzero(waiting == 0)
    while len(ready):
        count = inputs.ptr[ready + 1] - inputs.ptr[ready]
        for number in np.flatnonzero(np.bincount(count)):
            nodes = ready[count == number]
            if len(nodes) > 1:
                merge_equal(nodes, _keys(nodes, int(number), inputs, node, edge, same_as), same_as)
        merged = ready[same_as[ready] != ready]
        is_followed[merged] = is_followed[same_as[merged]] = True
        followed = ready[is_followed[ready]]
        reached = readers.child[runs(readers.ptr[followed], readers.ptr[followed + 1])]
        np.subtract.at(waiting, reached, 1)
        ready = sorted_set(reached[waiting[reached] == 0])
    distinct = distinct_nodes(same_as)
    return None if len(distinct.node) == dag.num_nodes else distinct


def distinct_nodes(same_as: IntArray) -> Distinct:
    """From the first of the nodes that each node equals."""
    is_first = same_as == np.arange(len(same_as))
    return Distinct(np.flatnonzero(is_first), (np.cumsum(is_first) - 1)[same_as])


def find_differing(dag: TypedDAG) -> Distinct:
    """The nodes that differ by themselves: in type or features."""
    same_as = np.arange(dag.num_nodes)
    merge_equal(np.arange(dag.num_nodes), [node_numbers(dag)], same_as)
    return distinct_nodes(same_as)


def merge_equal(nodes: IntArray, keys: Sequence[Numbers], same_as: IntArray) -> None:
    """Sets `same_as` of nodes with equal keys to the first of them; `nodes` ascend."""
    columns = _pack(keys)
    order = stable_order(columns[0]) if len(columns) == 1 else np.lexsort(columns)
    is_first = np.ones(len(nodes), dtype=bool)
    is_first[1:] = False
    for column in columns:
        is_first[1:] |= column[order[1:]] != column[order[:-1]]
    starts = np.flatnonzero(is_first)
    nodes = nodes[order]
    same_as[nodes] = np.repeat(nodes[starts], np.diff(starts, append=len(nodes)))


def _keys(
    nodes: IntArray,
    arity: int,
    inputs: Edges,
    node: Numbers,
    edge: Numbers,
    same_as: IntArray,
) -> list[Numbers]:
    """What must agree for nodes of one arity to be equal."""
    keys = [Numbers(node.value[nodes], node.size)]
    for slot in range(arity):
        position = inputs.ptr[nodes] + slot
        child = inputs.child[position]
        read = np.where(child < 0, 0, same_as[child] + 1)
        keys.append(Numbers(read, len(same_as) + 1))
        if edge.size > 1:
            keys.append(Numbers(edge.value[position], edge.size))
    return keys


def _pack(keys: Sequence[Numbers]) -> list[IntArray]:
    """The keys side by side in as few integers as hold them."""
    packed = [keys[0]]
    for key in keys[1:]:
        size = packed[-1].size * key.size
        if size < _MOST:
            packed[-1] = Numbers(packed[-1].value * key.size + key.value, size)
        else:
            packed.append(key)
    return [key.value for key in packed]


def node_numbers(dag: TypedDAG) -> Numbers:
    """A number per node that tells its type and its features."""
    op_type = dag.op_type.numpy()
    value, total = np.empty_like(op_type), 0
    for index, node_type in enumerate(dag.schema.types):
        columns = dag.features(node_type.name).values()
        is_type = op_type == index
        own = row_numbers((column.numpy() for column in columns), int(is_type.sum()))
        value[is_type] = total + own.value
        total += own.size
    return Numbers(value, total)


def _edge_numbers(dag: TypedDAG) -> Numbers:
    """A number per input that tells its columns."""
    columns = dag.columns["inputs"].values()
    return row_numbers((column.numpy() for column in columns), dag.num_inputs)


def row_numbers(columns: Iterable[npt.NDArray[Any]], num_rows: int) -> Numbers:
    """A number per row that tells the row's values in all columns."""
    if num_rows == 0:
        return Numbers(np.zeros(0, dtype=np.int64), 0)
    keys = [Numbers(np.zeros(num_rows, dtype=np.int64), 1)]
    keys += [_column_numbers(column) for column in columns]
    packed = _pack(keys)
    if len(packed) == 1:
        return Numbers(packed[0], int(packed[0].max()) + 1)
    return _byte_numbers(np.stack(packed, axis=1))


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
