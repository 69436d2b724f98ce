"""Linear layers by native products, for all rows of a batch at once.

Encoders, heads and what cells compute `before` the passes are linear layers of thousands of rows.
On processors that torch's default library is not made for, native products take half of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from graphfold._torch import is_batched, is_transformed
from graphfold.batching.native.library import REALS, load, why_missing
from graphfold.batching.native.readable import readable

#: Fewer multiplications than these are not shared out among threads.
FEW_MULTIPLICATIONS = 1 << 20

#: So few rows, or columns, do not repay packing the weight: torch is faster there.
FEW_ROWS = 32
FEW_COLUMNS = 16


class NativeLinear(TorchFunctionMode):
    """Inside, linear layers on a CPU are computed by native products."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # A kind of tensor that sees to its functions itself comes first.
        if func is F.linear and all(issubclass(kind, Tensor) for kind in types):
            func = linear
        return func(*args, **(kwargs or {}))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., m] input @ weight.T + bias; can be differentiated any number of times, as torch's.

    Args:
        input: [..., k].
        weight: [m, k].
        bias: [m], or None.
    """
    if not _fits(input, weight, bias):
        return F.linear(input, weight, bias)
    if not torch.is_grad_enabled():
        return multiply(input, weight.T, bias)
    output: Tensor = _Linear.apply(input, weight, bias)  # type: ignore[no-untyped-call]
    return output


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """True if native code computes this, and fast; it checks nothing, as torch's layer does."""
    if x.dim() != 2 or x.shape[0] <= FEW_ROWS or weight.shape[0] < FEW_COLUMNS:
        return False
    given = (x, weight) if bias is None else (x, weight, bias)
    return (
        all(type(t.detach()) is Tensor and t.is_cpu and t.dtype is x.dtype for t in given)
        and x.dtype in REALS
        and weight.dim() == 2
        and x.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and x.shape[1] > 0
        and not torch.is_autocast_enabled("cpu")
        and not is_transformed()
        and why_missing(x.dtype) is None
    )


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight.T, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        if torch.is_grad_enabled() or is_batched(grad):  # differentiated again, or many at once
            return (
                grad @ weight if of_x else None,
                grad.T @ x if of_weight else None,
                grad.sum(0) if of_bias else None,
            )
        sums = grad.new_zeros(grad.shape[1]) if of_bias else None
        return (
            multiply(grad, weight) if of_x else None,
            sum_products(grad, x, sums) if of_weight else None,
            sums if of_weight or sums is None else grad.sum(0),
        )


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[rows, m] x @ weight + bias, for x [rows, k], weight [k, m] and bias [m].

    Raises:
        EngineError: if one of them has no memory that native code can read.
    """
    dtype, (num_rows, k), m = x.dtype, x.shape, weight.shape[1]
    library, x = load(dtype), _with_rows(x, "the input")
    weight = readable(weight, dtype, "the weight", by_strides=True)
    bias = None if bias is None else readable(bias, dtype, "the bias")
    packed = weight.new_empty(library.packed_size(k, m))
    address = None if bias is None else bias.data_ptr()
    library.pack(weight.data_ptr(), *weight.stride(), address, k, m, packed.data_ptr())
    out = x.new_empty(num_rows, m)
    library.multiply(
        x.data_ptr(),
        x.stride(0),
        k,
        packed.data_ptr(),
        m,
        out.data_ptr(),
        m,
        num_rows,
        _num_threads(num_rows * k * m),
    )
    return out


def sum_products(left: Tensor, x: Tensor, sums: Tensor | None = None) -> Tensor:
    """[m, k] left.T @ x, for left [rows, m] and x [rows, k]; left.sum(0) is added to `sums`.

    Raises:
        EngineError: if one of them has no memory that native code can read.
        MemoryError: if there is no memory for the sums.
    """
    left, x = _with_rows(left, "the gradient"), _with_rows(x, "the input")
    (num_rows, m), k = left.shape, x.shape[1]
    total = left.new_empty(m, k)
    is_done = load(left.dtype).sum_products(
        left.data_ptr(),
        left.stride(0),
        m,
        x.data_ptr(),
        None,
        x.stride(0),
        1,
        k,
        total.data_ptr(),
        None if sums is None else sums.data_ptr(),
        num_rows,
        _num_threads(num_rows * k * m),
    )
    if not is_done:
        raise MemoryError("there is no memory for a product")
    return total


def _with_rows(x: Tensor, what: str) -> Tensor:
    """A matrix with dense rows; a copy if they are not."""
    return readable(x if x.stride(1) == 1 else x.contiguous(), x.dtype, what, by_strides=True)


def _num_threads(num_multiplications: int) -> int:
    return torch.get_num_threads() if num_multiplications >= FEW_MULTIPLICATIONS else 1
