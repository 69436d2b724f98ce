"""Reductions over runs of rows: sums, means, maxima and softmax per parent.

Rows are sorted by segment; segment i owns the rows ptr[i] .. ptr[i+1]. An empty segment gives
zeros. `parent` [num_rows], the segment of each row, is derived from `ptr` where it is not given.
A kernel is who computes them for cells: torch's operations, or torch-scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphfold._torch import is_transformed
from graphfold.batching.kernels.gather import gather_rows, parents, scatter_rows
from graphfold.errors import ConfigError

#: For fewer numbers plain operations are quicker on a CPU: they are launched sooner.
SMALL = 1 << 16

#: (values [num_rows, ...], ptr [num_segments + 1], parent [num_rows]) -> [num_segments, ...], or
#: from values of segments to rows.
Reduction = Callable[[Tensor, Tensor, Tensor], Tensor]


def use_plain(rows: Tensor, sizes: Sequence[int]) -> bool:
    """True if plain operations of torch serve for so many rows of these sizes.

    For few numbers on a CPU, where they add up in order, too; and within transforms of torch, which
    follow no others.
    """
    return (rows.is_cpu and rows.shape[0] * math.prod(sizes) < SMALL) or is_transformed()


def segment_sum(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the sum of each segment's rows of `values` [num_rows, ...]."""
    num_segments, sizes = ptr.shape[0] - 1, values.shape[1:]
    parent = parents(ptr, values.shape[0]) if parent is None else parent
    if use_plain(values, sizes):
        return values.new_zeros(num_segments, *sizes).index_add_(0, parent, values)
    rows = values.reshape(len(values), math.prod(sizes))
    edges = torch.arange(len(rows), device=ptr.device)
    return scatter_rows(rows, parent, edges, ptr).view(num_segments, *sizes)


def expand(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    """[num_rows, ...] for each row the value of its segment; its gradient is `segment_sum`."""
    if use_plain(parent, values.shape[1:]):
        return values.index_select(0, parent)
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    rows = torch.arange(len(parent), device=ptr.device)
    return gather_rows(flat, parent, rows, ptr).view(len(parent), *values.shape[1:])


def segment_mean(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the mean of each segment's rows."""
    return to_mean(segment_sum(values, ptr, parent), ptr.diff())


def to_mean(total: Tensor, count: Tensor) -> Tensor:
    """[num_segments, ...] means from sums and counts; empty segments stay zero."""
    count = count.clamp(min=1).to(total.dtype)
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
    if is_transformed():
        return _plain_max(values, ptr, parent)
    highest: Tensor = _Max.apply(values, ptr, parent, find or _highest)  # type: ignore[no-untyped-call]
    return highest


def segment_softmax(score: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_rows, ...] `score` normalised so that each segment's rows sum to one."""
    parent = parents(ptr, score.shape[0]) if parent is None else parent
    highest = segment_max(score.detach(), ptr, parent)
    weight = torch.exp(score - expand(highest, ptr, parent))
    return weight / expand(segment_sum(weight, ptr, parent), ptr, parent)


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


def _plain_max(values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
    """`segment_max` by operations that transforms of torch follow: the mean of the highest rows."""
    highest = _highest(values.detach(), ptr, parent).index_select(0, parent)
    is_highest = ~(values.detach() < highest)  # of NaNs, too
    rows = torch.where(is_highest, values, 0)
    count = segment_sum(is_highest.to(values.dtype), ptr, parent)
    return segment_sum(rows, ptr, parent) / count.clamp(min=1)


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


class Kernel(NamedTuple):
    """Reductions over runs of rows, and back, differentiable; an empty run gives zeros."""

    sum: Reduction
    max: Reduction
    expand: Reduction = expand


NATIVE = Kernel(segment_sum, segment_max)

#: The backend that runs cells eager, with reductions by torch-scatter.
SCATTER = "scatter"


def kernel_of(backend: str) -> Kernel:
    """The kernel that a backend's eager cells reduce with.

    Raises:
        ConfigError: if it is torch-scatter's, and that is not installed.
    """
    return _scatter() if backend == SCATTER else NATIVE


def _scatter() -> Kernel:
    try:
        from torch_scatter import segment_csr
    except (ImportError, OSError) as error:  # OSError: it was built against another torch
        raise ConfigError(
            f"the backend 'scatter' needs the package torch-scatter, which cannot be loaded "
            f"({error}). Install graphfold[scatter], or use the backend 'auto'."
        ) from error

    def reduce(reduction: str, values: Tensor, ptr: Tensor, parent: Tensor) -> Tensor:
        reduced: Tensor = segment_csr(values, ptr, reduce=reduction)
        return reduced

    highest = partial(segment_max, find=partial(reduce, "max"))
    return Kernel(partial(reduce, "sum"), highest)
