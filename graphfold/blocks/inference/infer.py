"""Trial calls of a function: they give its output type and find captured tensors."""

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


def infer_output_type(block: object, fn: Callable[..., Any], kind: ResultType) -> ResultType:
    """The output type of a function of batches for an input type.

    The function is called on a few zeros; the call has no side effects: it leaves the random
    generators and running statistics unchanged. A function that cannot take zeros, or would take
    very many, is called on tensors without values.

    Args:
        block: the block that messages name.
        fn: the function.
        kind: the type of its input.

    Raises:
        BlockTypeError: if the call fails, or returns anything but batches of tensors.
    """
    inferred = _type_for(BATCH_SIZE, block, fn, kind)
    if any(map(_may_hold_batch, inferred.terminal_types())) and (
        _type_for(BATCH_SIZE + 1, block, fn, kind) != inferred
    ):
        raise BlockTypeError(
            f"{block} mixes the rows of a batch: for {kind} its result has the batch size beyond "
            "the leading (batch) dimension. Treat every row for itself; unsqueeze what has fewer "
            "dimensions."
        )
    return inferred


def _may_hold_batch(kind: ResultType) -> bool:
    """True if a size may be the batch size, as after broadcasting [batch] with [batch, 1]."""
    return isinstance(kind, TensorType) and any(s and s % BATCH_SIZE == 0 for s in kind.shape)


def on_zeros(
    fn: Callable[..., Any], kind: ResultType, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """The tensors that a function returns for a row of zeros; none if it cannot take zeros.

    Args:
        fn: the function; a module keeps its mode and its buffers.
        kind: the type of its input.
        dtype: the dtype of floating-point tensors.
        device: the device of the model.
    """
    try:
        with _unchanged(fn, device):
            return flat_outputs(fn(*_zeros(1, kind, dtype, device)))
    except Exception:  # a user's function, which need not be able to take zeros
        return []


def gradient_leaves(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The leaves of the autograd graph behind some tensors."""
    stack = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if hasattr(node, "variable"):
            yield node.variable
        following = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= following
        stack.extend(following)


def _type_for(size: int, block: object, fn: Callable[..., Any], kind: ResultType) -> ResultType:
    try:
        with _evaluating(fn):
            result = _call_quietly(size, fn, kind)
    except Exception as error:
        raise BlockTypeError(
            f"{block} cannot take {kind}: {type(error).__name__}: {error}. Its function gets one "
            "batch of tensors for each item."
        ) from error
    return _type_of(size, result, block)


def _call_quietly(size: int, fn: Callable[..., Any], kind: ResultType) -> Any:
    # Tensors without values are the last resort: torch loads its compiler for them, and a lazy
    # module, which makes its parameters in the first call, needs real ones.
    lazy = isinstance(fn, nn.Module) and any(map(is_lazy, fn.parameters()))
    count = sum(item.size for item in kind.terminal_types() if isinstance(item, TensorType))
    if not lazy and size * count > MOST_NUMBERS:
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
        with suppress(Exception):  # an inverse, say, fails on zeros and not without values
            return _on_fakes(size, fn, kind)
        raise


def _on_fakes(size: int, fn: Callable[..., Any], kind: ResultType) -> Any:
    with fake_tensors(), torch.no_grad():
        return fn(*_zeros(size, kind))


@contextmanager
def _evaluating(fn: Callable[..., Any]) -> Iterator[None]:
    """Puts a module into evaluation mode for a block, and torch's log of failed calls off."""
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
            if not torch.equal(buffer, values):  # an autograd graph may hold the buffer
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


def _type_of(size: int, result: Any, block: object) -> ResultType:
    if isinstance(result, (tuple, list)):
        return TupleType(*(_type_of(size, item, block) for item in result))
    if not isinstance(result, Tensor):
        raise BlockTypeError(
            f"{block} returns {quoted(result)}, which is not a tensor. Return tensors."
        )
    if result.ndim == 0:
        raise BlockTypeError(
            f"{block}: expected a batch tensor, saw a scalar: {list(result.shape)}. Keep the first "
            "dimension, which is the batch."
        )
    if result.shape[0] != size:
        raise BlockTypeError(
            f"{block}: leading (batch) dimension should be that of the input, {size}, but a "
            f"tensor of shape {list(result.shape)} is returned. Treat every row for itself."
        )
    return TensorType(tuple(result.shape[1:]), result.dtype)
