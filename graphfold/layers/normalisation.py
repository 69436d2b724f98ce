"""Batch normalisation over the rows of all processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphfold._torch import is_fake


def is_batch_norm(module: object) -> bool:
    """True for torch's modules that normalise by statistics of the batch, or by running ones.

    Their `running_mean` is None if they have no running statistics.
    """
    return hasattr(module, "track_running_stats")


def normalise(norm: nn.BatchNorm1d, h: Tensor, real: Tensor | None = None) -> Tensor:
    """`norm(h)`, over the rows of all processes where several train together.

    So N processes with parts of a batch compute the same as one process with the full batch. A
    single row has no variance, and is normalised by the running statistics.

    Args:
        norm: the normalisation.
        h: [num_rows, size]
        real: [num_rows, 1] 1 for the rows that statistics count, 0 for padding; None if all count.
    """
    # In a trace the compiler leaves padding out.
    if norm.training and (_is_distributed() or (real is not None and not is_fake(h))):
        return _normalise_together(norm, h, torch.ones_like(h[:, :1]) if real is None else real)
    if norm.training and h.shape[0] < 2:
        return functional.batch_norm(
            h, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )
    normalised: Tensor = norm(h)
    return normalised


def _is_distributed() -> bool:
    is_joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    return is_joined and torch.distributed.get_world_size() > 1


def _normalise_together(norm: nn.BatchNorm1d, h: Tensor, real: Tensor) -> Tensor:
    """Batch normalisation over all processes, on any device (torch's own needs a GPU)."""
    weight = real.square()  # trials of a compiled cell give it numbers of both signs
    count = _sum_over_processes(weight.sum(0))
    mean = _sum_over_processes((h * weight).sum(0)) / count
    variance = _sum_over_processes(((h - mean).square() * weight).sum(0)) / count
    if norm.running_mean is not None and norm.running_var is not None:
        momentum = norm.momentum or 0.0
        unbiased = variance.detach() * (count / (count - 1).clamp(min=1))
        norm.running_mean.lerp_(mean.detach(), momentum)
        norm.running_var.lerp_(unbiased, momentum)
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked += 1
    return (h - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias


class _SumOverProcesses(torch.autograd.Function):
    """The sum over all processes; its gradient is summed in the same way."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone()
        torch.distributed.all_reduce(total)
        return total


def _sum_over_processes(values: Tensor) -> Tensor:
    if not _is_distributed():
        return values
    total: Tensor = _SumOverProcesses.apply(values)  # type: ignore[no-untyped-call]
    return total
