"""Sums of messages that are never held: kernels in C for CPUs, forward and backward.

A message is a neighbour's row, times a weight, or relu(the row + what its edge adds), as in GINE.
With torch's operations every one of them is a row of an intermediate result or of several, and of a
batch of molecules these no longer fit into the caches: they took a fifth of a training step.
message_sum.h says how.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphfold.batching.kernels.c_compiler import declare
from graphfold.batching.kernels.c_kernels import REALS, compile_kernels
from graphfold.batching.kernels.gather import parents
from graphfold.batching.kernels.plain_tensor import is_plain
from graphfold.batching.kernels.profiled import profiled
from graphfold.errors import EngineError

#: Fewer numbers than these are not shared out among threads.
FEW_NUMBERS = 1 << 16


class Messages(NamedTuple):
    """Which rows send messages to which segments, and how they are weighed.

    Args:
        read: [num_edges] the row that each edge reads, sorted by segment.
        ptr: [num_segments + 1] where the edges of each segment begin.
        weight: [num_edges] what a message is times in the sum; None for ones.
        kind: [num_edges] the addend of each edge, if there are addends.
        own: [num_segments] what a row of the segment itself is times in the sum; None for none.
        previous: [num_segments] that row; None if segment i has row i.
    """

    read: Tensor
    ptr: Tensor
    weight: Tensor | None = None
    kind: Tensor | None = None
    own: Tensor | None = None
    previous: Tensor | None = None


def can_sum(values: Tensor, messages: Messages, addend: Tensor | None = None) -> bool:
    """Whether `message_sum` computes this sum here, and all gradients that may be asked for.

    Not if a shape or a dtype does not fit either, for torch says best what is wrong then.
    """
    read, ptr, weight, kind, own, previous = messages
    factors = [t for t in (weight, own) if t is not None]
    given = [values, *factors] if addend is None else [values, addend, *factors]
    per_segment = (ptr.shape[0] - 1,)
    return (
        all(is_plain(t, REALS) and t.dtype is values.dtype for t in given)
        and all(t is None or (t.is_cpu and t.dtype is torch.int64) for t in (kind, previous))
        and not any(t.requires_grad for t in factors)
        and all(t is None or t.shape == read.shape for t in (weight, kind))
        and all(t is None or t.shape == per_segment for t in (own, previous))
        and (kind is None if addend is None else kind is not None)
        and (addend is None or addend.shape[1:] == values.shape[1:])
        and _is_ready(values.dtype)
    )


def message_sum(values: Tensor, messages: Messages, addend: Tensor | None = None) -> Tensor:
    """[num_segments, width] the sum of the messages to every segment.

    Can be differentiated by values and addend, any number of times; see `can_sum`.

    Args:
        values: [num_rows, width].
        messages: which of them are summed.
        addend: [num_kinds, width] what is added before relu; None for the rows as they are.

    Raises:
        IndexError: if there is no addend of some kind.
        EngineError: if the kernels cannot be compiled.
    """
    values = values if values.stride(1) == 1 else values.contiguous()
    addend = None if addend is None else addend.contiguous()
    messages = Messages._make(t if t is None else t.contiguous() for t in messages)
    kind, num_kinds = messages.kind, 0 if addend is None else addend.shape[0]
    if kind is not None and not _load(values.dtype).is_below(
        kind.data_ptr(), kind.shape[0], num_kinds
    ):
        raise IndexError(f"an edge is of a kind that none of the {num_kinds} addends is for")
    total: Tensor = _MessageSum.apply(values, addend, messages)  # type: ignore[no-untyped-call]
    return total


class _MessageSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, addend: Tensor | None, messages: Messages) -> Tensor:
        ctx.messages, ctx.shape = messages, values.shape
        ctx.save_for_backward(*(() if addend is None else (values, addend)))
        num_segments = messages.ptr.shape[0] - 1
        out = values.new_empty(num_segments, values.shape[1])
        _load(values.dtype).forward(
            ctypes.byref(_arguments(values, messages, addend)),
            out.data_ptr(),
            num_segments,
            _num_threads(messages, values),
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        messages, (values, addend) = ctx.messages, ctx.saved_tensors or (None, None)
        if torch.is_grad_enabled():
            return *_gradients(grad, messages, ctx.shape, values, addend), None
        grad = grad.contiguous()
        of_values = grad.new_empty(ctx.shape)
        of_addend = None if addend is None else torch.empty_like(addend)
        _load(grad.dtype).backward(
            ctypes.byref(_arguments(of_values if values is None else values, messages, addend)),
            grad.data_ptr(),
            of_values.data_ptr(),
            None if of_addend is None else of_addend.data_ptr(),
            messages.ptr.shape[0] - 1,
            _num_threads(messages, grad),
        )
        return of_values, of_addend, None


def _gradients(
    grad: Tensor,
    messages: Messages,
    shape: torch.Size,
    values: Tensor | None,
    addend: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of values and addend by torch's operations, for a second backward."""
    read, ptr, weight, kind, own, previous = messages
    of_edge = grad.index_select(0, parents(ptr, len(read)))
    of_values = grad.new_zeros(shape)
    if weight is not None:
        of_edge = of_edge * weight.unsqueeze(1)
    of_addend = None
    if values is not None and addend is not None and kind is not None:
        is_cut = values.index_select(0, read) + addend.index_select(0, kind) <= 0
        of_edge = of_edge.masked_fill(is_cut, 0)
        of_addend = torch.zeros_like(addend).index_add(0, kind, of_edge)
    of_values = of_values.index_add(0, read, of_edge)
    if own is not None:
        rows = torch.arange(len(own)) if previous is None else previous
        of_values = of_values.index_add(0, rows, grad * own.unsqueeze(1))
    return of_values, of_addend


class _Arguments(ctypes.Structure):
    """`messages` of message_sum.h."""

    _fields_ = [
        ("values", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("stride", "width", "num_rows")),
        *((name, ctypes.c_void_p) for name in ("read", "ptr", "weight", "addend", "kind")),
        ("num_kinds", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("own", "previous")),
    ]


def _arguments(values: Tensor, messages: Messages, addend: Tensor | None) -> _Arguments:
    return _Arguments(
        values.data_ptr(),
        values.stride(0),
        values.shape[1],
        values.shape[0],
        messages.read.data_ptr(),
        messages.ptr.data_ptr(),
        _pointer(messages.weight),
        _pointer(addend),
        _pointer(messages.kind),
        0 if addend is None else addend.shape[0],
        _pointer(messages.own),
        _pointer(messages.previous),
    )


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _num_threads(messages: Messages, values: Tensor) -> int:
    num_numbers = (messages.read.shape[0] + messages.ptr.shape[0]) * values.shape[1]
    return torch.get_num_threads() if num_numbers >= FEW_NUMBERS else 1


class _Kernels(NamedTuple):
    """The functions of message_sum.h for one dtype."""

    is_below: Callable[..., int]
    forward: Callable[..., None]
    backward: Callable[..., None]


@functools.cache
def _load(dtype: torch.dtype) -> _Kernels:
    """The kernels for a dtype, which are compiled now if they are not.

    Raises:
        EngineError: if they cannot be compiled.
    """
    library = compile_kernels("message_sum.h", dtype)
    return _Kernels(
        declare(library, "is_below", "pii", ctypes.c_int64),
        profiled("message_sum", declare(library, "sum_messages", "ppii")),
        profiled("message_sum", declare(library, "sum_messages_back", "ppppii")),
    )


@functools.cache
def _is_ready(dtype: torch.dtype) -> bool:
    """Whether there are kernels for a dtype; warns, once, if a compiler refuses them."""
    try:
        return dtype in REALS and bool(_load(dtype))
    except EngineError as error:
        warnings.warn(f"Messages are summed without kernels: {error}.", stacklevel=2)
        return False
