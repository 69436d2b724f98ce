"""Calls of a function that leave no trace: they tell its output type, and what it captures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from graphfold._torch import fake_tensor_log, fake_tensors, needs_numbers
from graphfold.blocks.block_errors import BlockTypeError, quoted
from graphfold.blocks.inference.types import ResultType, TensorType, TupleType, in_dtype
from graphfold.blocks.running.cells import flat_outputs

#: A number of rows that no other dimension is likely to have.
BATCH_SIZE = 37

#: A call on more numbers than these would take noticeable time.
MOST_NUMBERS = 1 << 22


def infer_output_type(whose: object, fn: Callable[..., Any], kind: ResultType) -> ResultType:
    """The type that a function of batches gives for an input type.

    The call is on zeros, few enough to cost nothing, and changes nothing: no random numbers are
    drawn, no running statistics updated. A function that cannot take zeros, or would take very
    many, is called on tensors without values.

    Args:
        whose: what the message names.
        fn: the function.
        kind: the type of its input.

    Raises:
        BlockTypeError: if the call fails, or gives something else than batches of tensors.
    """
    found = _type_for(BATCH_SIZE, whose, fn, kind)
    suspects = [item for item in found.terminal_types() if _may_hold_batch(item)]
    if suspects and _type_for(BATCH_SIZE + 1, whose, fn, kind) != found:
        raise BlockTypeError(
            f"{whose} mixes the rows of a batch: for {kind} its result has the batch size beyond "
            "the leading (batch) dimension. Treat every row for itself; unsqueeze what has fewer "
            "dimensions."
        )
    return found


def _may_hold_batch(kind: ResultType) -> bool:
    """True if a size may be that of the batch, as after broadcasting [batch] with [batch, 1]."""
    return isinstance(kind, TensorType) and any(s and s % BATCH_SIZE == 0 for s in kind.shape)


def on_zeros(
    fn: Callable[..., Any], kind: ResultType, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """The tensors that a function gives for a row of zeros; none if it cannot take them.

    Args:
        fn: the function; a module is in the mode that it is in, and is not changed.
        kind: the type of its input.
        dtype: the dtype of floating-point tensors.
        device: that of the model.
    """
    try:
        with _unchanged(fn, device):
            return flat_outputs(fn(*_zeros(1, kind, dtype, device)))
    except Exception:  # anybody's function, which need not be able to take zeros
        return []


def gradient_leaves(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors that the gradients of some tensors reach."""
    stack = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if hasattr(node, "variable"):
            yield node.variable
        following = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= following
        stack.extend(following)


def _type_for(size: int, whose: object, fn: Callable[..., Any], kind: ResultType) -> ResultType:
    try:
        with _evaluating(fn):
            result = _call_quietly(size, fn, kind)
    except Exception as error:
        raise BlockTypeError(
            f"{whose} cannot take {kind}: {type(error).__name__}: {error}. Its function gets one "
            "batch of tensors for each item."
        ) from error
    return _type_of(size, result, whose)


def _call_quietly(size: int, fn: Callable[..., Any], kind: ResultType) -> Any:
    # Tensors without values are the last resort: torch loads its compiler for them, and a lazy
    # module, which makes its parameters in the first call, needs real ones.
    lazy = isinstance(fn, nn.Module) and any(map(is_lazy, fn.parameters()))
    if not lazy and size * _size(kind) > MOST_NUMBERS:
        try:
            return _on_fakes(size, fn, kind)
        except needs_numbers():
            pass
    try:
        with torch.no_grad():
            return fn(*_zeros(size, kind))
    except Exception:
        if lazy:
            raise
        with suppress(Exception):  # what zeros are wrong for, such as an inverse, may do without
            return _on_fakes(size, fn, kind)
        raise


def _on_fakes(size: int, fn: Callable[..., Any], kind: ResultType) -> Any:
    with fake_tensors(), torch.no_grad():
        return fn(*_zeros(size, kind))


def _size(kind: ResultType) -> int:
    return sum(item.size for item in kind.terminal_types() if isinstance(item, TensorType))


@contextmanager
def _evaluating(fn: Callable[..., Any]) -> Iterator[None]:
    """A module in evaluation mode, and as it was afterwards.

    What torch logs of a call that fails is left out.
    """
    modules = list(fn.modules()) if isinstance(fn, nn.Module) else []
    modes = [module.training for module in modules]
    failures = fake_tensor_log()  # our message says it in a line
    was_disabled = failures.disabled
    try:
        failures.disabled = True
        for module in modules:
            module.training = False
        with _unchanged(fn):
            yield
    finally:
        failures.disabled = was_disabled
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


@contextmanager
def _unchanged(fn: Callable[..., Any], device: torch.device | None = None) -> Iterator[None]:
    """Restores the buffers of a module and the state of the random generators."""
    buffers = list(fn.buffers()) if isinstance(fn, nn.Module) else []
    before = [(buffer, buffer.clone()) for buffer in buffers if not is_lazy(buffer)]
    try:
        with torch.random.fork_rng([device] if device and device.type == "cuda" else []):
            yield
    finally:
        for buffer, values in before:
            if not torch.equal(buffer, values):  # a graph may hold it as it is
                buffer.copy_(values)


def _zeros(
    size: int,
    kind: ResultType,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Any:

    def make(item: ResultType) -> Any:
        if isinstance(item, TupleType):
            return tuple(map(make, item))
        assert isinstance(item, TensorType)
        return torch.zeros((size, *item.shape), dtype=in_dtype(item, dtype), device=device)

    return make(kind) if isinstance(kind, TupleType) else (make(kind),)


def _type_of(size: int, result: Any, whose: object) -> ResultType:
    if isinstance(result, (tuple, list)):
        return TupleType(*(_type_of(size, item, whose) for item in result))
    if not isinstance(result, Tensor):
        raise BlockTypeError(
            f"{whose} returns {quoted(result)}, which is not a tensor. Return tensors."
        )
    if result.ndim == 0:
        raise BlockTypeError(
            f"{whose}: expected a batch tensor, saw a scalar: {list(result.shape)}. Keep the first "
            "dimension, which is the batch."
        )
    if result.shape[0] != size:
        raise BlockTypeError(
            f"{whose}: leading (batch) dimension should be that of the input, {size}, but a "
            f"tensor of shape {list(result.shape)} is returned. Treat every row for itself."
        )
    return TensorType(tuple(result.shape[1:]), result.dtype)
