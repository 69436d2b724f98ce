"""Readers: who reads each row of a pass, and which groups read or are read in one piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphfold.dag.depth import IntArray, run_pointers, stable_order


class Readers(NamedTuple):
    """The child edges of a pass, sorted by the row that is read; row 0 is the absent child."""

    edge: IntArray  # [num_edges] the position of each edge in the plan
    ptr: IntArray  # [num_rows + 2] where the readers of each row begin
    of_row: IntArray | None  # [num_rows + 1] 1 + the row's only edge, 0 for none; None if several


def find_readers(child_row: IntArray, num_rows: int) -> Readers:
    """The edges by what they read.

    Args:
        child_row: [num_edges] the row that each edge reads; 0 for an absent child.
        num_rows: the number of rows, the absent one not counted.
    """
    count = np.bincount(child_row, minlength=num_rows + 1)
    ptr = run_pointers(count)
    if count[1:].max(initial=0) > 1:
        return Readers(stable_order(child_row), ptr, None)
    # Where every row has one reader at most, nothing need be sorted: the edges are written down.
    of_row = np.zeros(num_rows + 1, dtype=np.int64)
    of_row[child_row] = np.arange(1, len(child_row) + 1)
    of_row[0] = 0
    absent, present = (child_row == 0).nonzero()[0], of_row[of_row > 0] - 1
    return Readers(np.concatenate([absent, present]), ptr, of_row)


def first_children(child_row: IntArray, edge_bounds: IntArray) -> IntArray:
    """[num_groups] the first row that a group's edges read if they read consecutive rows, else -1.

    Args:
        child_row: [num_edges] the row that each edge reads.
        edge_bounds: [num_groups + 1] where the edges of each group begin.
    """
    begin, end = edge_bounds[:-1], edge_bounds[1:]
    if len(child_row) == 0:
        return np.full(len(begin), -1)
    breaks = _breaks(child_row)
    first = np.minimum(begin, len(child_row) - 1)  # of a group without edges, never used
    whole = (end > begin) & (breaks[end - 1] == breaks[first]) & (child_row[first] > 0)
    return np.where(whole, child_row[first], -1)


def first_edges(
    child_row: IntArray, readers: Readers, row_bounds: IntArray
) -> tuple[IntArray, IntArray]:
    """Which groups are read in one piece: by consecutive edges, from the first row on.

    Args:
        child_row: [num_edges] the row that each edge reads.
        readers: the same edges by what they read.
        row_bounds: [num_groups + 1] the first row of each group.

    Returns:
        [num_groups] the first edge, which reads the first row, or -1 if the group is read otherwise
        (0 if nobody reads it), and [num_groups] how many edges read the group.
    """
    begin, end = readers.ptr[row_bounds[:-1]], readers.ptr[row_bounds[1:]]
    if len(child_row) == 0:
        return np.zeros_like(begin), end - begin
    read = child_row[readers.edge]
    breaks = _breaks(read, readers.edge)
    first = np.minimum(begin, len(read) - 1)
    whole = (breaks[end - 1] == breaks[first]) & (read[first] == row_bounds[:-1])
    edge = np.where(whole, readers.edge[first], -1)
    return np.where(end > begin, edge, 0), end - begin


def _breaks(*columns: IntArray) -> IntArray:
    """[n] how often, up to each row, a column's number was not its predecessor plus one."""
    is_break = np.zeros(len(columns[0]), dtype=bool)
    for numbers in columns:
        is_break[1:] |= numbers[1:] != numbers[:-1] + 1
    return is_break.cumsum()
