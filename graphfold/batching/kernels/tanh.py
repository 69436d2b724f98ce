"""The hyperbolic tangent by NumPy, which on a CPU takes a tenth of the time that torch's does.

Gates and states of recurrent cells are tanh; after the products it was the most of a step. torch
takes 2 nanoseconds for a number of float32, NumPy 0.15, where it has its vector code (AVX2 and
AVX-512); each is off by less than one unit in the last place, and they differ by as much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from graphfold.batching.kernels.plain_tensor import is_plain
from graphfold.batching.kernels.profiled import profiled

_HAS_VECTORS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
#: Of fewer numbers, torch's has begun and ended before NumPy's begins.
FEW_NUMBERS = 512


def tanh(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The same as torch's, which can be differentiated any number of times.

    Shape:
        x: any
        out: the shape of x
        returns: the shape of x
    """
    if not _HAS_VECTORS or not is_plain(x) or x.numel() < FEW_NUMBERS:
        return torch.tanh(x, out=out)
    if x.requires_grad and torch.is_grad_enabled():
        result: Tensor = _Tanh.apply(x)  # type: ignore[no-untyped-call]
        return result
    return _tanh(x, torch.empty_like(x) if out is None else out)


class _Tanh(Function):
    """`tanh` under autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _tanh(x, torch.empty_like(x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        result: Tensor = torch.ops.aten.tanh_backward(grad, y)
        return result


def _by_numpy(x: Tensor, out: Tensor) -> Tensor:
    np.tanh(x.detach().numpy() if x.requires_grad else x.numpy(), out.numpy())
    return out


_tanh = profiled("tanh", _by_numpy)
