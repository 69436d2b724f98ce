"""Reductions over runs of rows: sums, means, maxima and softmax per parent.

Rows are sorted by segment; segment i owns the rows ptr[i] .. ptr[i+1]. An empty segment gives
zeros. `parent` [num_rows], the segment of each row, is derived from `ptr` where it is not given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: So many neighbour rows may be held at once where an edge's own gradient needs them.
EDGES_PER_CHUNK = 1 << 16


def parents(ptr: Tensor) -> Tensor:
    """[num_rows] the segment of each row."""
    count = ptr[1:] - ptr[:-1]
    return torch.repeat_interleave(torch.arange(len(count), device=ptr.device), count)


def segment_sum(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the sum of each segment's rows of `values` [num_rows, ...]."""
    parent = parents(ptr) if parent is None else parent
    # On a CPU index_add is six times as fast as segment_reduce, and its backward is one gather.
    total = values.new_zeros(len(ptr) - 1, *values.shape[1:])
    return total.index_add(0, parent, values)


def segment_mean(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the mean of each segment's rows."""
    total = segment_sum(values, ptr, parent)
    count = (ptr[1:] - ptr[:-1]).clamp(min=1).to(values.dtype)
    return total / count.view(-1, *[1] * (values.dim() - 1))


def segment_max(values: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_segments, ...] the elementwise maximum of each segment's rows.

    Where several rows reach the maximum, the gradient is shared equally among them.
    """
    parent = parents(ptr) if parent is None else parent
    index = parent.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    zeros = values.new_zeros(len(ptr) - 1, *values.shape[1:])
    return zeros.scatter_reduce(0, index, values, "amax", include_self=False)


def segment_softmax(score: Tensor, ptr: Tensor, parent: Tensor | None = None) -> Tensor:
    """[num_rows, ...] `score` normalised so that each segment's rows sum to one."""
    parent = parents(ptr) if parent is None else parent
    highest = segment_max(score.detach(), ptr, parent)
    weight = torch.exp(score - highest.index_select(0, parent))
    return weight / segment_sum(weight, ptr, parent).index_select(0, parent)


class GatherSum(torch.autograd.Function):
    """Sums of gathered rows, without ever holding the gathered rows.

    Forward and backward are the same operation: the gradient of a row is the sum of the gradients
    of the segments that read it. So it can be differentiated any number of times.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        index: Tensor,
        ptr: Tensor,
        reader: Tensor,
        reader_ptr: Tensor,
        weight: Tensor | None,
        reader_edge: Tensor,
    ) -> Tensor:
        """Sums `values[index]`, each times its weight, over the segments of `ptr`.

        Shape:
            values: [num_rows, width]
            index: [num_edges] the row that each edge reads, sorted by segment
            ptr: [num_segments + 1]
            reader: [num_edges] the segment that reads, sorted by the row that is read
            reader_ptr: [num_rows + 1] where the readers of each row begin
            weight: [num_edges] sorted by segment, or None for ones
            reader_edge: [num_edges] the edge of each reader, sorted by the row that is read
            returns: [num_segments, width]
        """
        kept = values if ctx.needs_input_grad[5] else None
        ctx.save_for_backward(index, ptr, reader, reader_ptr, weight, reader_edge, kept)
        return gather_sum(values, index, ptr, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, ptr, reader, reader_ptr, weight, reader_edge, kept = ctx.saved_tensors
        back = None
        if weight is not None:
            back, reader_edge = weight.index_select(0, reader_edge), torch.argsort(reader_edge)
        grad_values = GatherSum.apply(  # type: ignore[no-untyped-call]
            grad, reader, reader_ptr, index, ptr, back, reader_edge
        )
        grad_weight = None if kept is None else _edge_products(kept, index, grad, parents(ptr))
        return grad_values, None, None, None, None, grad_weight, None


def _edge_products(values: Tensor, index: Tensor, grad: Tensor, parent: Tensor) -> Tensor:
    """[num_edges] values[index] · grad[parent], some edges at a time to bound the memory."""
    chunks = zip(
        torch.split(index, EDGES_PER_CHUNK), torch.split(parent, EDGES_PER_CHUNK), strict=True
    )
    products = [(values[i] * grad[p]).sum(1) for i, p in chunks]
    return torch.cat(products)


def gather_sum(values: Tensor, index: Tensor, ptr: Tensor, weight: Tensor | None = None) -> Tensor:
    """[num_segments, width] sums of `values[index]` per segment; not differentiable by itself."""
    if len(index) == 0 or len(ptr) == 1 or values.shape[1] == 0:
        return values.new_zeros(len(ptr) - 1, values.shape[1])
    return torch.nn.functional.embedding_bag(
        index, values, ptr, mode="sum", include_last_offset=True, per_sample_weights=weight
    )
