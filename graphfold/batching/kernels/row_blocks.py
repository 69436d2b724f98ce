"""Products of many rows in two blocks, where a command chose oneDNN for products.

oneDNN compiles a kernel for every new shape: half a millisecond, half a megabyte. Batches and their
groups have another number of rows every time, so many rows are multiplied in two blocks, one a
multiple of 64 and one of less: shapes that come again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from graphfold.batching.kernels.onednn import FEW_ROWS, is_onednn_at_work, is_onednn_chosen
from graphfold.batching.kernels.plain_tensor import is_plain

#: Of more rows than these, a multiple is multiplied first, then the rest.
BLOCK_ROWS = 64
#: New memory begins at multiples of so many bytes. The order of MKL's sums depends on that.
ALIGNMENT = 64
#: Products of no more multiplications than these torch does not give to oneDNN.
FEW_MULTIPLICATIONS = 16**3


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, only_x: bool = False) -> Tensor:
    """[..., m] x @ weight.T + bias; can be differentiated any number of times, as torch's.

    Args:
        x: [..., k].
        weight: [m, k].
        bias: [m], or None.
        only_x: whether nobody will ask for the gradients of weight and bias, so that they need not
            be computed even if those require them.
    """
    if not is_plain(x) or x.dim() != 2 or not _cut(x) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    output: Tensor = _Linear.apply(x, weight, bias, only_x)  # type: ignore[no-untyped-call]
    return output


def addmm(bias: Tensor, x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """[rows, m] bias + x @ weight, for x [rows, k], weight [k, m] and bias [m]; see `mm`."""
    if not is_onednn_chosen() or x.shape[0] <= FEW_ROWS:
        if out is not None and _depends_on_place(x, weight, out):
            return out.copy_(torch.addmm(bias, x, weight))
        return torch.addmm(bias, x, weight, out=out)
    # torch copies the bias first, which takes longer; the sums are the same.
    return mm(x, weight, out=out).add_(bias)


def mm(x: Tensor, weight: Tensor, *, out: Tensor | None = None) -> Tensor:
    """[rows, m] x @ weight, for x [rows, k] and weight [k, m].

    The bits are the same wherever `out` lies.
    """
    if out is not None and _depends_on_place(x, weight, out):
        return out.copy_(mm(x, weight))
    cut = _cut(x)
    if not cut:
        return torch.mm(x, weight, out=out)
    if out is None:
        out = x.new_empty(x.shape[0], weight.shape[1])
    torch.mm(x[:cut], weight, out=out[:cut])
    torch.mm(x[cut:], weight, out=out[cut:])
    return out


def rows_mm(x: Tensor, y: Tensor) -> Tensor:
    """[k, m] the sum over rows x.T @ y, for x [rows, k] and y [rows, m]."""
    cut = _cut(x)
    if not cut:
        return x.T @ y
    return (x[:cut].T @ y[:cut]).addmm_(x[cut:].T, y[cut:])


class _Linear(Function):
    """A linear layer in blocks, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, only_x: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.only_x = only_x
        return mm(x, weight.T) if bias is None else addmm(bias, x, weight.T)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            linear(grad, weight.T) if of_x else None,
            rows_mm(grad, x) if of_weight and not ctx.only_x else None,
            grad.sum(0) if of_bias and not ctx.only_x else None,
            None,
        )


def _depends_on_place(x: Tensor, weight: Tensor, out: Tensor) -> bool:
    """Whether a product would have other bits in a place than in new memory: MKL's may."""
    if not out.is_cpu or out.data_ptr() % ALIGNMENT == 0:
        return False
    rows, width = x.shape
    is_onednn = is_onednn_at_work() and x.dtype is torch.float32
    return not is_onednn or rows * width * weight.shape[1] <= FEW_MULTIPLICATIONS


def _cut(x: Tensor) -> int:
    """How many rows are the first block; 0 if all are one."""
    rows = x.shape[0]
    if not is_onednn_chosen() or rows < BLOCK_ROWS:
        return 0
    rest = rows % BLOCK_ROWS
    return rows - rest if rest else 0
