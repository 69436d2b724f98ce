"""Readers: who reads each row of a pass."""

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
