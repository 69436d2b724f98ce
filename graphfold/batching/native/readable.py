"""The one place where tensors are checked before native code reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add, attrgetter, ge, mul
from typing import TypeAlias

import torch
from torch import Tensor, UntypedStorage, nn

from graphfold._torch import is_fake
from graphfold.errors import EngineError

#: The name of a tensor in messages: a word, or a kind and a name.
What: TypeAlias = str | tuple[str, str]

#: Kinds that have other names in messages.
NAMED_KINDS = {"upstream": "the gradient of", "state": "the field", "kept": "what forward kept of"}

_ORDINARY = frozenset({Tensor, nn.Parameter})  # never fake
_kind = attrgetter("dtype", "is_cpu")


def all_readable(
    tensors: Sequence[Tensor],
    dtype: torch.dtype,
    names: Sequence[What],
    sizes: Sequence[int] | None = None,
    by_strides: bool = False,
) -> Sequence[Tensor]:
    """Several tensors, each as `readable` gives it; `sizes` has one for each."""
    if _are_plain(tensors, dtype, sizes):
        return tensors
    counts = repeat(None, len(tensors)) if sizes is None else sizes
    return [
        readable(tensor, dtype, what, size, by_strides)
        for tensor, what, size in zip(tensors, names, counts, strict=True)
    ]


def _are_plain(tensors: Sequence[Tensor], dtype: torch.dtype, sizes: Sequence[int] | None) -> bool:
    """True if all tensors lie one number after the other, as they nearly always do.

    Every call of a network asks it of some thirty tensors, so no Python runs for each.
    """
    if not _ORDINARY.issuperset(map(type, tensors)):
        return False
    try:
        counts = list(map(Tensor.numel, tensors))
        ends = map(add, map(Tensor.storage_offset, tensors), counts)
        bytes_needed = map(mul, ends, repeat(dtype.itemsize))
        bytes_there = map(UntypedStorage.nbytes, map(Tensor.untyped_storage, tensors))
        return (
            {(dtype, True)}.issuperset(map(_kind, tensors))
            and (sizes is None or counts == sizes)
            and all(map(Tensor.is_contiguous, tensors))
            and not any(map(Tensor.is_neg, tensors))
            and all(map(ge, bytes_there, bytes_needed))
        )
    except RuntimeError:  # one stands for many tensors, or is sparse
        return False


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
    if isinstance(what, str):
        return what
    kind, name = what
    return f"{NAMED_KINDS.get(kind, kind)} {name}".strip()
