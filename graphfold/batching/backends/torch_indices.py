"""GroupIndices: the rows that each group of a plan reads, and that read it, as torch takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphfold._torch import outside_modes
from graphfold.batching.scheduling.pass_schedule import PassSchedule

#: First row of a group -> its part of something.
Parts = Mapping[int, Tensor]


class Readers(NamedTuple):
    """The readers of some rows.

    Args:
        reader: [num_readers] the readers, or the edges by which they read, sorted by the row.
        ptr: [num_rows + 1] where those of each row begin.
        among: where they stand among the readers of all rows.
        most: how many a row has, at most.
    """

    reader: Tensor
    ptr: Tensor
    among: slice
    most: int


class GroupIndices:
    """The rows that the groups of a plan read, and that read them, cut up for all groups at once.

    It is made once for each plan, on the CPU, so that no GPU is waited for; what a kind needs is
    sent there at once. Rows are counted from the first that a tensor has.
    """

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}

    def parts(self, plan: PassSchedule, kind: str, first: int = 0) -> Parts:
        """First row of a group -> its indices.

        Args:
            plan: the plan, always the same.
            kind: the name of one of the functions below.
            first: the first row of the tensor that is read.
        """
        found: Parts = self._once(plan, _INDICES[kind], first)
        return found

    def readers(
        self, plan: PassSchedule, kind: str, first: int, rows: range | None = None
    ) -> Mapping[int, Readers]:
        """First row of a group -> the readers of its rows; groups that nothing reads are left out.

        Args:
            plan: the plan, always the same.
            kind: the name of one of the functions below that find readers.
            first: the first row of the tensor that is read.
            rows: those that are read, as if they were the only group; None for all groups.
        """
        found: Mapping[int, Readers] = self._once(plan, _find_readers, kind, first, rows)
        return found

    def _once(self, plan: PassSchedule, find: Callable[..., Any], *arguments: Any) -> Any:
        key = find, *arguments
        if key not in self._found:
            self._found[key] = _found_on_cpu(plan, find, arguments)
        return self._found[key]


@outside_modes
def _found_on_cpu(
    plan: PassSchedule, find: Callable[..., Mapping[int, Any]], arguments: Sequence[Any]
) -> Mapping[int, Any]:
    """The indices that a function finds of a plan, sent to its device in one transfer."""
    found, device = find(plan.host, *arguments), plan.row.device
    if device.type == "cpu" or not found:
        return found
    pairs = [own[:2] if isinstance(own, Readers) else (own,) for own in found.values()]
    flat = [part for pair in pairs for part in pair]
    there = torch.cat(flat).to(device, non_blocking=True).split_with_sizes([*map(len, flat)])
    parts = iter(there)
    return {
        start: own._replace(reader=next(parts), ptr=next(parts))
        if isinstance(own, Readers)
        else next(parts)
        for start, own in found.items()
    }


def _previous_row(plan: PassSchedule, first: int) -> Parts:
    assert plan.previous_row is not None
    return plan.split_rows(plan.previous_row - first)


def _pointers(plan: PassSchedule) -> Tensor:
    """[num_rows + 2] where the edges of each row begin, row 0 first."""
    return torch.cat([plan.child_ptr[:1], plan.child_ptr])


def _edge_ptr(plan: PassSchedule, _: int) -> Parts:
    starts = [group.start for group in plan.in_row_order]
    return _local_pointers(_pointers(plan), starts, plan.num_rows + 1)


def _edge_number(plan: PassSchedule, _: int) -> Parts:
    """The numbers from 0 on."""
    groups = plan.groups
    numbers = torch.arange(max((g.num_edges for g in groups), default=0), device="cpu")
    by_count = {count: numbers[:count] for count in {group.num_edges for group in groups}}
    return {group.start: by_count[group.num_edges] for group in groups}


_INDICES: Mapping[str, Callable[[PassSchedule, int], Parts]] = {
    "child_row": lambda plan, first: plan.split_edges(
        plan.child_row - first if first else plan.child_row
    ),
    "previous_row": _previous_row,
    "parent": lambda plan, _: plan.split_edges(plan.parent),
    "edge_ptr": _edge_ptr,
    "edge_number": _edge_number,
    "edge_count": lambda plan, _: plan.split_rows(_pointers(plan).diff()),
}


def _following_rows(plan: PassSchedule, first: int) -> tuple[Tensor, Tensor]:
    """The rows that follow each row in the next round; empty without rounds."""
    if plan.following is None:
        return plan.reader_ptr.new_zeros(plan.num_rows + 2), plan.reader_edge[:0]
    ptr, row = plan.following
    return ptr, row + (1 - first)


#: [num_rows + 2] where the readers of each row begin, row 0 first; and these: edges, or rows.
_READERS: Mapping[str, Callable[[PassSchedule, int], tuple[Tensor, Tensor]]] = {
    "edge_grad": lambda plan, _: (plan.reader_ptr, plan.reader_edge),
    "weighted_grad": lambda plan, first: (plan.reader_ptr, plan.reader + (1 - first)),
    "node_grad": lambda plan, first: (plan.reader_ptr, plan.reader + (1 - first)),
    "previous_grad": _following_rows,
}


def _local_pointers(ptr: Tensor, starts: Sequence[int], stop: int) -> dict[int, Tensor]:
    """First row of a group -> [size + 1] where what its rows have begins, counted in the group.

    Args:
        ptr: [num_rows + 2] where what each row has begins, row 0 first.
        starts: the first row of each group, one group after the other.
        stop: the end of the last group.
    """
    counts = [end - start + 1 for start, end in pairwise([*starts, stop])]
    number = torch.repeat_interleave(torch.tensor(counts, dtype=torch.int64, device="cpu"))
    # The end of a group is the beginning of the next.
    place = torch.arange(len(number), device="cpu") - number + (starts[0] if starts else 0)
    first = torch.tensor(starts, dtype=torch.int64, device="cpu")
    local = ptr[place] - ptr[first][number]
    return dict(zip(starts, local.split_with_sizes(counts), strict=True))


def _find_readers(
    plan: PassSchedule, kind: str, first: int, rows: range | None
) -> Mapping[int, Readers]:
    """See `GroupIndices.readers`."""
    ptr, reader = _READERS[kind](plan, first)
    starts = [group.start for group in plan.in_row_order] if rows is None else [rows.start]
    stop = plan.num_rows + 1 if rows is None else rows.stop
    bounds = ptr[torch.tensor([*starts, stop], device="cpu")].tolist()
    if bounds[0] == bounds[-1]:  # nothing reads them
        return {}
    counts = ptr[starts[0] : stop + 1].diff().numpy()
    most = np.maximum.reduceat(counts, np.array(starts) - starts[0]).tolist()
    pointers = _local_pointers(ptr, starts, stop)
    return {
        start: Readers(reader[begin:end], pointers[start], slice(begin, end), own)
        for start, (begin, end), own in zip(starts, pairwise(bounds), most, strict=True)
        if begin < end
    }
