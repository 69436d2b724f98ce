"""Reductions over runs of rows: sums, means, maxima and softmax per parent.

Rows are sorted by segment; segment i owns the rows ptr[i] .. ptr[i+1]. An empty segment gives
zeros. `parent` [num_rows], the segment of each row, is derived from `ptr` where it is not given.
The ways to compute them are compared in `graphfold.batching.kernels.segment_kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphfold.batching.kernels.gather import gather_sum as gather_sum
from graphfold.batching.kernels.gather import parents

#: Below so many numbers the few operations of `sum_by_index_add` are quicker on a CPU.
SMALL = 1 << 16

#: (values [num_rows, ...], ptr [num_segments + 1], parent [num_rows]) -> [num_segments, ...]
Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]


def segment_sum(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the sum of each segment's rows of `values` [num_rows, ...]."""
    if is_small(values, values.shape[1:]):
        return sum_by_index_add(values, ptr, parent)
    return _sum(values, ptr, parent, _total)


def sum_by_runs(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """`segment_sum` by one call that knows the runs: nothing is filled with zeros first."""
    return _sum(values, ptr, parent, _total_by_runs)


def sum_by_index_add(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """`segment_sum` by adding every row to its segment; in any order, on a GPU."""
    parent = parents(ptr, values.shape[0]) if parent is None else parent
    total = values.new_zeros(ptr.shape[0] - 1, *values.shape[1:])
    return total.index_add_(0, parent, values)


def expand(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    """[num_rows, ...] for each row the value of its segment; its gradient is `segment_sum`."""
    if is_small(parent, values.shape[1:]):
        return values.index_select(0, parent)
    rows: Tensor = _Expand.apply(values, ptr, parent)  # type: ignore[no-untyped-call]
    return rows


def segment_mean(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the mean of each segment's rows."""
    return to_mean(segment_sum(values, ptr, parent), ptr)


def to_mean(total: Tensor, ptr: Tensor) -> Tensor:
    """[num_segments, ...] means from sums; an empty segment keeps its zeros."""
    count = (ptr[1:] - ptr[:-1]).clamp(min=1).to(total.dtype)
    return total / count.view(-1, *[1] * (total.dim() - 1))


def segment_max(
    values: Tensor, ptr: Tensor, parent: Tensor | None = None, find: Reduction | None = None
) -> Tensor:
    """[num_segments, ...] the elementwise maximum of each segment's rows.

    Where several rows reach the maximum, the gradient is shared equally among them, whoever finds
    it: torch's own reductions share it only in part of the cases.

    Args:
        values: [num_rows, ...].
        ptr: [num_segments + 1] where the rows of each segment begin.
        parent: [num_rows] the segment of each row.
        find: what finds the maxima; it need not be differentiable. If not given, scatter_reduce.
    """
    parent = parents(ptr, values.shape[0]) if parent is None else parent
    highest: Tensor = _Max.apply(values, ptr, parent, find or _highest)  # type: ignore[no-untyped-call]
    return highest


def segment_softmax(score: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_rows, ...] `score` normalised so that each segment's rows sum to one."""
    parent = parents(ptr, score.shape[0]) if parent is None else parent
    highest = segment_max(score.detach(), ptr, parent)
    weight = torch.exp(score - expand(highest, ptr, parent))
    return weight / expand(segment_sum(weight, ptr, parent), ptr, parent)


def _sum(values: Tensor, ptr: Tensor, parent: Tensor | None, find: Reduction) -> Tensor:
    parent = parents(ptr, values.shape[0]) if parent is None else parent
    total: Tensor = _Sum.apply(values, ptr, parent, find)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    """`segment_sum`, found by any function; its gradient is `_Expand`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor, parent: Tensor, find: Reduction) -> Tensor:
        ctx.save_for_backward(ptr, parent)
        return find(values, ptr, parent)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        rows = _Expand.apply(grad, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return rows, None, None, None


class _Expand(torch.autograd.Function):
    """`expand`; its gradient is `_Sum`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        ctx.save_for_backward(ptr, parent)
        return values.index_select(0, parent)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        total = _Sum.apply(grad, *ctx.saved_tensors, _total)  # type: ignore[no-untyped-call]
        return total, None, None


class _Max(torch.autograd.Function):
    """`segment_max`: found by any function, with a gradient of our own.

    That of scatter_reduce takes five times as long, and is halved where the maximum equals the zero
    which the reduction starts from, although that zero does not take part. That of segment_reduce
    is not shared where it is negative (torch 2.13), that of torch-scatter never.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, ptr: Tensor, parent: Tensor, find: Reduction) -> Tensor:
        highest = find(values, ptr, parent)
        ctx.save_for_backward(values, highest, ptr, parent)
        return highest

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _shares(grad, *ctx.saved_tensors), None, None, None


def is_small(rows: Tensor, sizes: Sequence[int]) -> bool:
    """Whether so many rows of these sizes are few numbers on a CPU."""
    return rows.is_cpu and rows.shape[0] * math.prod(sizes) < SMALL


def _total(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    find = sum_by_index_add if is_small(values, values.shape[1:]) else _total_by_runs
    return find(values, ptr, parent)


def _total_by_runs(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    rows = values.reshape(len(values), math.prod(values.shape[1:]))
    total = gather_sum(rows, torch.arange(len(values), device=ptr.device), ptr)
    return total.view(len(ptr) - 1, *values.shape[1:])


def _highest(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    index = parent.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    zeros = values.new_zeros(ptr.shape[0] - 1, *values.shape[1:])
    return zeros.scatter_reduce_(0, index, values, "amax", include_self=False)


def _shares(grad: Tensor, values: Tensor, highest: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    """[num_rows, ...] the gradient of `segment_max`."""
    is_highest = highest.detach().index_select(0, parent)  # and its memory is used again
    torch.eq(values.detach(), is_highest, out=is_highest)
    share = grad / segment_sum(is_highest, ptr, parent).clamp(min=1)
    return share.index_select(0, parent).mul_(is_highest)
