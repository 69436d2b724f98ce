"""GroupIndices: the rows that each group of a plan reads, and that read it, as torch takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.scheduling.pass_schedule import PassSchedule

#: First row of a group -> its part of something.
Parts = Mapping[int, Tensor]


class GroupIndices:
    """The rows that the groups of a plan read, and that read them, cut up for all groups at once.

    It is made once for each plan, on the CPU, so that no GPU is waited for; what a kind needs is
    sent there at once. Rows are counted from the first that a tensor has.
    """

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}

    def parts(self, plan: PassSchedule, kind: str, first: int = 0) -> Any:
        """First row of a group -> its indices, and for readers where each row's begin.

        Args:
            plan: the plan, always the same.
            kind: the name of one of the functions below.
            first: the first row of the tensor that is read.
        """
        key = kind, first
        if key not in self._found:
            self._found[key] = _find_parts(plan, kind, first)
        return self._found[key]

    def most_readers(self, plan: PassSchedule, kind: str) -> Mapping[int, int]:
        """First row of a group -> how many readers of a kind a row of it has, at most."""
        key = "most", kind
        if key not in self._found:
            self._found[key] = _count_most(plan, kind)
        return self._found[key]  # type: ignore[no-any-return]

    def readers(
        self, plan: PassSchedule, kind: str, first: int, rows: range
    ) -> tuple[Tensor, Tensor, slice]:
        """The readers of some rows, where each row's begin, and the rows themselves.

        Args:
            plan: the plan, always the same.
            kind: the name of one of the functions below that find readers.
            first: the first row of the tensor that is read.
            rows: those that are read.
        """
        key = kind, first, rows
        if key not in self._found:
            self._found[key] = _find_readers(plan, kind, first, rows)
        index, pointers, among = self._found[key]
        return index, pointers, among


@outside_modes
def _find_parts(plan: PassSchedule, kind: str, first: int) -> Mapping[int, Any]:
    return _moved(_INDICES[kind](plan.host, first), plan.row.device)


@outside_modes
def _find_readers(
    plan: PassSchedule, kind: str, first: int, rows: range
) -> tuple[Tensor, Tensor, slice]:
    ptr, reader = _READERS[kind](plan.host, first)
    own = ptr[rows.start : rows.stop + 1]
    among = slice(*own[[0, -1]].tolist())
    pointers, index = own - own[0], reader[among]
    return *_moved({0: (index, pointers)}, plan.row.device)[0], among


@outside_modes
def _count_most(plan: PassSchedule, kind: str) -> Mapping[int, int]:
    counts = _READERS[kind](plan.host, 0)[0].diff()[1:].numpy()
    starts = [group.start for group in plan.in_row_order]
    most = np.maximum.reduceat(counts, np.array(starts) - 1) if starts else ()
    return dict(zip(starts, map(int, most), strict=True))


def _moved(found: Mapping[int, Any], device: torch.device) -> Mapping[int, Any]:
    """Copies tensors, or pairs of tensors, to a device in one transfer."""
    if device.type == "cpu" or not found:
        return found
    flat = [part for own in found.values() for part in (own if isinstance(own, tuple) else [own])]
    there = torch.cat(flat).to(device, non_blocking=True).split_with_sizes([*map(len, flat)])
    parts = iter(there)
    return {
        start: tuple(next(parts) for _ in own) if isinstance(own, tuple) else next(parts)
        for start, own in found.items()
    }


def _child_row(plan: PassSchedule, first: int) -> Parts:
    return plan.split_edges(plan.child_row - first if first else plan.child_row)


def _previous_row(plan: PassSchedule, first: int) -> Parts:
    assert plan.previous_row is not None
    return plan.split_rows(plan.previous_row - first)


def _parent(plan: PassSchedule, _: int) -> Parts:
    return plan.split_edges(plan.parent)


def _edge_ptr(plan: PassSchedule, _: int) -> Parts:
    return _local_pointers(plan, plan.child_ptr)


def _edge_number(plan: PassSchedule, _: int) -> Parts:
    """The numbers from 0 on."""
    groups = plan.groups
    numbers = torch.arange(max((g.num_edges for g in groups), default=0), device="cpu")
    by_count = {count: numbers[:count] for count in {group.num_edges for group in groups}}
    return {group.start: by_count[group.num_edges] for group in groups}


def _edge_count(plan: PassSchedule, _: int) -> Parts:
    """The number of edges of each row."""
    return plan.split_rows(torch.cat([plan.child_ptr[:1], plan.child_ptr.diff()]))


def _reading_edges(plan: PassSchedule, _: int) -> tuple[Tensor, Tensor]:
    """The edges that read each row."""
    return plan.reader_ptr, plan.reader_edge


def _reading_rows(plan: PassSchedule, first: int) -> tuple[Tensor, Tensor]:
    """The rows that read each row."""
    return plan.reader_ptr, plan.reader + (1 - first)


def _following_rows(plan: PassSchedule, first: int) -> tuple[Tensor, Tensor]:
    """The rows that follow each row in the next round; empty without rounds."""
    if plan.following is None:
        return plan.reader_ptr.new_zeros(plan.num_rows + 2), plan.reader_edge[:0]
    ptr, row = plan.following
    return ptr, row + (1 - first)


#: [num_rows + 2] where the readers of each row begin, row 0 first; and these.
_READERS: Mapping[str, Callable[[PassSchedule, int], tuple[Tensor, Tensor]]] = {
    "edge_grad": _reading_edges,
    "weighted_grad": _reading_rows,
    "node_grad": _reading_rows,
    "previous_grad": _following_rows,
    "edge_weight": _reading_edges,
}


def _local_pointers(plan: PassSchedule, ptr: Tensor) -> Parts:
    """First row of a group -> [size + 1] where what its rows have begins, counted in the group.

    Args:
        plan: the plan.
        ptr: [num_rows + 1] where what each row has begins, row 1 first.
    """
    groups = plan.in_row_order
    counts = [group.size + 1 for group in groups]
    number = torch.repeat_interleave(torch.tensor(counts, dtype=torch.int64, device="cpu"))
    # Groups follow each other, and the end of one is the beginning of the next.
    place = torch.arange(len(number), device="cpu") - number
    start = torch.tensor([g.start - 1 for g in groups], dtype=torch.int64, device="cpu")
    local = ptr[place] - ptr[start][number]
    return dict(zip((g.start for g in groups), local.split_with_sizes(counts), strict=True))


def _readers(kind: str, plan: PassSchedule, first: int) -> Mapping[int, tuple[Tensor, Tensor]]:
    """First row of a group -> the readers of its rows, of one kind, and where each row's begin.

    Groups that nothing reads are left out.
    """
    ptr, reader = _READERS[kind](plan, first)
    groups = plan.in_row_order
    bounds = ptr[
        torch.tensor([*(g.start for g in groups), plan.num_rows + 1], device="cpu")
    ].tolist()
    before = bounds[0] if bounds else 0
    sizes = [stop - start for start, stop in pairwise(bounds)]
    parts = reader[before : before + sum(sizes)].split_with_sizes(sizes)
    pointers = _local_pointers(plan, ptr[1:])
    return {
        group.start: (part, pointers[group.start])
        for group, part, size in zip(groups, parts, sizes, strict=True)
        if size
    }


_INDICES: Mapping[str, Callable[[PassSchedule, int], Any]] = {
    "child_row": _child_row,
    "previous_row": _previous_row,
    "parent": _parent,
    "edge_ptr": _edge_ptr,
    "edge_number": _edge_number,
    "edge_count": _edge_count,
    **{kind: partial(_readers, kind) for kind in _READERS},
}
