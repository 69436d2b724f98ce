"""The one place where tensors are checked before native code reads them."""

from __future__ import annotations

from operator import mul
from typing import TypeAlias

import torch
from torch import Tensor, nn

from graphfold._torch import is_fake
from graphfold.errors import EngineError

#: The name of a tensor in messages: a word, or a kind and a name.
What: TypeAlias = str | tuple[str, str]

_ORDINARY = (Tensor, nn.Parameter)  # never fake


def readable(
    tensor: Tensor,
    dtype: torch.dtype,
    what: What,
    size: int | None = None,
    by_strides: bool = False,
) -> Tensor:
    """A tensor as native code reads it by its address, or such a copy of it.

    Native code takes whatever lies at an address for numbers. A tensor may have been moved, freed
    or replaced since the last call, so no address outlives a call, and what the engine has not just
    made itself is checked for each: its device, its dtype, its layout, and whether there is memory
    for all of its numbers.

    Args:
        tensor: the tensor.
        dtype: of the numbers that native code expects.
        what: the name of the tensor in messages.
        size: how many numbers native code expects; None if the caller has counted them.
        by_strides: whether native code reads it by its strides, instead of one after the other.

    Raises:
        EngineError: if native code would find something else.
    """
    try:
        is_dense = tensor.is_contiguous()
        if tensor.is_neg() or not (is_dense or by_strides):
            tensor, is_dense = tensor.resolve_neg().contiguous(), True
        count = tensor.numel() if is_dense else _span(tensor)
        end = tensor.storage_offset() + count
        if (
            (tensor.untyped_storage().nbytes() >= end * tensor.itemsize or not count)
            and tensor.dtype is dtype
            and tensor.is_cpu
            and (size is None or size == count)
            and (type(tensor) in _ORDINARY or not is_fake(tensor))
        ):
            return tensor
    except RuntimeError as error:  # it stands for many tensors, or is sparse
        raise EngineError(_no_memory(tensor, what)) from error
    raise EngineError(_fault(tensor, dtype, what, size))


def _span(tensor: Tensor) -> int:
    """The count of numbers from the first of a tensor to the last, with those in between."""
    shape, strides = tensor.shape, tensor.stride()
    return 1 + sum(map(mul, shape, strides)) - sum(strides) if tensor.numel() else 0


def _fault(tensor: Tensor, dtype: torch.dtype, what: What, size: int | None) -> str:
    """The reason why native code cannot read a tensor, and the remedy."""
    name = _name(what)
    if is_fake(tensor):
        return _no_memory(tensor, what)
    if tensor.dtype is not dtype or not tensor.is_cpu:
        return (
            f"{name} is {tensor.dtype} on {tensor.device}, but native code reads {dtype} on the "
            f"CPU. Convert it: tensor.to('cpu', {dtype})."
        )
    if size not in (None, tensor.numel()):
        return (
            f"{name} has {tensor.numel()} numbers, but native code reads {size}. Plan the graphs "
            "again: build_schedule(dag, passes)."
        )
    return (
        f"the memory of {name} has been freed: its storage has {tensor.untyped_storage().nbytes()} "
        f"bytes for a tensor of shape {list(tensor.shape)} and {dtype}. Restore it before the "
        "network runs."
    )


def _no_memory(tensor: Tensor, what: What) -> str:
    return (
        f"{_name(what)} is a {type(tensor).__name__} without memory that native code can read, "
        "such as one of FakeTensorMode or of a transform of torch.func. Run the network outside of "
        "it, or use run=eager (model.run=eager)."
    )


def _name(what: What) -> str:
    return what if isinstance(what, str) else " ".join(what).strip()
