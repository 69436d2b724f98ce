"""Linear layers by graphfold's own products, for rounds of message passing.

They begin sooner than those of libraries and have no shapes to get used to: a step of training with
GINE or D-MPNN takes 3 % less time at batch 64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from graphfold.batching.kernels import row_blocks
from graphfold.batching.kernels.c_kernels import REALS
from graphfold.batching.kernels.plain_tensor import is_plain
from graphfold.batching.kernels.products import are_quick, multiply, pack, sum_products


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., m] x @ weight.T + bias; can be differentiated any number of times, as torch's.

    Args:
        x: [..., k].
        weight: [m, k].
        bias: [m], or None.
    """
    if not _fits(x, weight, bias) or torch.is_autocast_enabled("cpu"):
        return row_blocks.linear(x, weight, bias)
    output: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernels compute this: they check nothing, and torch says what is wrong."""
    given = (x, weight) if bias is None else (x, weight, bias)
    return (
        # A parameter, detached, is a tensor; what is more than that stays what it is.
        all(is_plain(t.detach(), REALS) and t.dtype is x.dtype for t in given)
        and x.dim() == weight.dim() == 2
        and x.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and x.numel() > 0
        and are_quick(x.dtype)
    )


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, pack(weight.T, bias))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        if torch.is_grad_enabled():  # it may be differentiated again
            return (
                grad @ weight if of_x else None,
                grad.T @ x if of_weight else None,
                grad.sum(0) if of_bias else None,
            )
        sums = grad.new_zeros(grad.shape[1]) if of_bias else None
        return (
            multiply(grad, pack(weight)) if of_x else None,
            sum_products(grad, x, None, sums) if of_weight else None,
            sums if of_weight or sums is None else grad.sum(0),
        )
