"""The types of the values that flow between blocks.

Python objects come in, tensors come out: Looks et al. (2017), https://arxiv.org/abs/1702.02181,
section 3.2. A type is a value: it can be compared, hashed, sorted and printed, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import total_ordering
from itertools import chain, repeat
from math import prod
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from graphfold.blocks.block_errors import BlockTypeError

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )
}


@total_ordering
class ResultType:
    """Base of the types; the terminal ones are tensors and Python objects."""

    def __lt__(self, other: object) -> bool:
        return repr(self) < repr(other) if isinstance(other, ResultType) else NotImplemented

    @property
    def size(self) -> int | None:
        """The number of numbers in a value; None if it varies."""
        return None

    def terminal_types(self) -> Iterator[ResultType]:
        """The terminal types in it, in order; none in a void."""
        yield self

    def for_each_terminal(self, fn: Callable[[ResultType, Any], None], instance: Any) -> None:
        """Calls fn(type, value) for every terminal value of an instance, in order."""
        fn(self, instance)

    def flatten(self, instance: Any) -> list[Any]:
        """The terminal values of an instance, in order."""
        items: list[Any] = []
        self.for_each_terminal(lambda _, value: items.append(value), instance)
        return items

    def unflatten(self, flat: Iterator[Any], shaped_like: Any = None) -> Any:
        """An instance from its terminal values.

        Args:
            flat: the terminal values, in order.
            shaped_like: an instance whose sequences are as long; only sequences need it.
        """
        return next(flat)


@dataclass(frozen=True)
class VoidType(ResultType):
    """The type of no value: the input of a constant, the output of a metric."""

    def terminal_types(self) -> Iterator[ResultType]:
        return iter(())

    def for_each_terminal(self, fn: Callable[[ResultType, Any], None], instance: Any) -> None:
        pass

    def unflatten(self, flat: Iterator[Any], shaped_like: Any = None) -> None:
        return None


@dataclass(frozen=True)
class PyObjectType(ResultType):
    """The type of any Python object."""


@dataclass(frozen=True, repr=False, init=False)
class TensorType(ResultType):
    """The type of tensors of one shape and dtype; the shape is without the batch dimension.

    `numpy.array(tensor_type)` is a tensor of zeros.

    Args:
        shape: the size of every dimension.
        dtype: a name as in torch, such as "int64", or a dtype of torch or numpy. Floating-point
            tensors take the dtype of the model's parameters when a model runs (`model.double()`).

    Raises:
        BlockTypeError: if the shape is no list of sizes, or there is no such dtype.
    """

    shape: tuple[int, ...]
    dtype: str

    def __init__(self, shape: Sequence[int], dtype: Any = "float32") -> None:
        if not isinstance(shape, (tuple, list)) or not all(map(is_size, shape)):
            raise BlockTypeError(
                f"shape must be a tuple or list of sizes, but it is {shape!r}. Give [] for a "
                "scalar, [3] for a vector of three."
            )
        object.__setattr__(self, "shape", tuple(int(size) for size in shape))
        object.__setattr__(self, "dtype", _dtype_name(dtype))

    def __repr__(self) -> str:
        return f"TensorType({self.shape}, {self.dtype!r})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.zeros(self.shape, self.numpy_dtype if dtype is None else dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of torch."""
        return DTYPES[self.dtype]

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of arrays that hold its values: float32 for bfloat16, which numpy lacks."""
        return np.dtype("float32" if self.dtype == "bfloat16" else self.dtype)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions; 0 for a scalar."""
        return len(self.shape)

    @property
    def is_floating_point(self) -> bool:
        """True for dtypes that have gradients."""
        return self.torch_dtype.is_floating_point


@dataclass(frozen=True, repr=False, init=False)
class TupleType(ResultType, Sequence[ResultType]):
    """The type of tuples of a fixed length; it is the sequence of the items' types.

    Args:
        *item_types: the types, or a single iterable of them.

    Raises:
        BlockTypeError: if one of them is not a type.
    """

    item_types: tuple[ResultType, ...]

    def __init__(self, *item_types: ResultType | Iterable[ResultType]) -> None:
        items: Any = item_types
        if len(items) == 1 and not isinstance(items[0], ResultType):
            items = tuple(items[0]) if isinstance(items[0], Iterable) else items
        for number, item in enumerate(items):
            if not isinstance(item, ResultType):
                raise BlockTypeError(
                    f"item_types[{number}] is not a type: {item!r}. Convert it with "
                    "convert_to_type."
                )
        object.__setattr__(self, "item_types", tuple(items))

    def __repr__(self) -> str:
        return f"TupleType({', '.join(map(repr, self.item_types))})"

    def __len__(self) -> int:
        return len(self.item_types)

    @overload
    def __getitem__(self, key: int) -> ResultType: ...
    @overload
    def __getitem__(self, key: slice) -> TupleType: ...
    def __getitem__(self, key: int | slice) -> ResultType:
        items = self.item_types[key]
        return TupleType(*items) if isinstance(items, tuple) else items

    @property
    def size(self) -> int | None:
        sizes = [item.size for item in self.item_types]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def terminal_types(self) -> Iterator[ResultType]:
        return chain.from_iterable(item.terminal_types() for item in self.item_types)

    def for_each_terminal(self, fn: Callable[[ResultType, Any], None], instance: Any) -> None:
        for item_type, item in zip(self.item_types, instance, strict=True):
            item_type.for_each_terminal(fn, item)

    def unflatten(self, flat: Iterator[Any], shaped_like: Any = None) -> tuple[Any, ...]:
        likes = [None] * len(self) if shaped_like is None else shaped_like
        return tuple(
            item.unflatten(flat, like) for item, like in zip(self.item_types, likes, strict=True)
        )


@dataclass(frozen=True, repr=False)
class SequenceType(ResultType):
    """The type of sequences of any length whose elements have one type.

    Args:
        element_type: the type of the elements.

    Raises:
        BlockTypeError: if it is not a type.
    """

    element_type: ResultType

    def __post_init__(self) -> None:
        if not isinstance(self.element_type, ResultType):
            raise BlockTypeError(
                f"{self.element_type!r} is not a type. Convert it with convert_to_type."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element_type!r})"

    def terminal_types(self) -> Iterator[ResultType]:
        return self.element_type.terminal_types()

    def for_each_terminal(self, fn: Callable[[ResultType, Any], None], instance: Any) -> None:
        for element in instance:
            self.element_type.for_each_terminal(fn, element)

    def unflatten(self, flat: Iterator[Any], shaped_like: Any = None) -> Any:
        return [self.element_type.unflatten(flat, like) for like in shaped_like]


@dataclass(frozen=True, repr=False)
class BroadcastSequenceType(SequenceType):
    """The type of endless sequences of one element, `itertools.repeat`; see `Broadcast`."""

    def for_each_terminal(self, fn: Callable[[ResultType, Any], None], instance: Any) -> None:
        self.element_type.for_each_terminal(fn, next(instance))

    def unflatten(self, flat: Iterator[Any], shaped_like: Any = None) -> Any:
        like = None if shaped_like is None else next(shaped_like)
        return repeat(self.element_type.unflatten(flat, like))


def is_size(value: object) -> bool:
    """True for a possible size of a dimension: an integer from 0 on."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0


def _dtype_name(dtype: Any) -> str:
    # "float" is torch's float32, and would be numpy's float64.
    named = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if isinstance(named, torch.dtype):
        name = str(named).removeprefix("torch.")
    else:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = str(dtype)
    if name not in DTYPES:
        raise BlockTypeError(
            f"there are no tensors of dtype {dtype!r}. Use one of {', '.join(DTYPES)}; turn "
            "strings into numbers with InputTransform."
        )
    return name


#: A type, or an object that `convert_to_type` converts to one.
TypeLike: TypeAlias = Any


def convert_to_type(type_like: TypeLike) -> ResultType:
    """Converts an object to a type.

    - a type: itself;
    - a tuple: a `TupleType` of its items, converted;
    - a list, such as `[3, 4, "int32"]`: a `TensorType` of that shape, float32 if none is named;
    - a `torch.Size`: a float32 `TensorType` of that shape;
    - a dtype or its name: the type of a scalar;
    - an integer: the type of a float32 vector of that length.

    Raises:
        BlockTypeError: if it is none of these.
    """
    if isinstance(type_like, ResultType):
        return type_like
    if isinstance(type_like, torch.Size):
        return TensorType(type_like)
    if isinstance(type_like, tuple):
        return TupleType(*map(convert_to_type, type_like))
    if isinstance(type_like, list):
        if type_like and not is_size(type_like[-1]):
            return TensorType(type_like[:-1], type_like[-1])
        return TensorType(type_like)
    if isinstance(type_like, (torch.dtype, np.dtype, str)):
        return TensorType((), type_like)
    if is_size(type_like):
        return TensorType((type_like,))
    raise BlockTypeError(
        f"cannot convert {type_like!r} to a type. Give a type, a dtype, a list for a shape or a "
        "tuple of such."
    )


def canonicalize_type(type_like: TypeLike) -> ResultType:
    """Replaces each tuple or sequence that holds only Python objects by `PyObjectType`."""
    kind = convert_to_type(type_like)
    if isinstance(kind, TupleType) and len(kind):
        kind = TupleType(*map(canonicalize_type, kind))
        return PyObjectType() if all(isinstance(t, PyObjectType) for t in kind) else kind
    if isinstance(kind, SequenceType):
        element = canonicalize_type(kind.element_type)
        return element if isinstance(element, PyObjectType) else type(kind)(element)
    return kind


def element_type_of(kind: ResultType, reader: object) -> ResultType:
    """The type of the elements of a sequence, a tuple of equals or a Python object.

    Raises:
        BlockTypeError: if `kind` is none of these; the message names the reader.
    """
    if isinstance(kind, PyObjectType):
        return kind
    if isinstance(kind, SequenceType):
        return kind.element_type
    if not isinstance(kind, TupleType):
        raise BlockTypeError(
            f"{reader} expected a python object or sequence or tuple, but its input is {kind}."
        )
    if not len(kind):
        raise BlockTypeError(f"{reader} expected a non-empty tuple. Give it an item.")
    if len(set(kind)) != 1:
        raise BlockTypeError(
            f"{reader}: tuple item types must all be equal: {kind}. Give items of one type."
        )
    return kind[0]


def pair_of(kind: ResultType, expected: str) -> tuple[ResultType, ResultType]:
    """The two types of a pair; raises BlockTypeError for any other type."""
    if not isinstance(kind, TupleType) or len(kind) != 2:
        raise BlockTypeError(f"expected a two-tuple of {expected}, saw: {kind}.")
    return kind[0], kind[1]


def refuse_endless(kind: ResultType, reader: object, verb: str) -> None:
    """Raises BlockTypeError for an infinite sequence."""
    if isinstance(kind, BroadcastSequenceType):
        raise BlockTypeError(
            f"{reader} cannot {verb} an infinite sequence: {kind}. Zip it with a finite one first."
        )


def tensor_types(kind: ResultType) -> list[TensorType] | None:
    """The types in a tensor type or nested tuples of tensors; None if anything else is in it."""
    if isinstance(kind, TensorType):
        return [kind]
    if not isinstance(kind, TupleType):
        return None
    parts = [tensor_types(item) for item in kind]
    return None if None in parts else list(chain.from_iterable(part or () for part in parts))


def in_short(kind: ResultType | None) -> str:
    """A type in a few characters: `float32[3]`, `(object, [float32])`; `?` if it is unknown."""
    if isinstance(kind, TensorType):
        return kind.dtype + (str(list(kind.shape)) if kind.shape else "")
    if isinstance(kind, TupleType):
        return f"({', '.join(map(in_short, kind))})"
    if isinstance(kind, SequenceType):
        endless = "..." if isinstance(kind, BroadcastSequenceType) else ""
        return f"[{in_short(kind.element_type)}{endless}]"
    return {PyObjectType: "object", VoidType: "void"}.get(type(kind), "?")  # type: ignore[arg-type]


def float_dtype_of(modules: Iterable[nn.Module]) -> torch.dtype | None:
    """The dtype of the first floating-point parameter, else of the first such buffer, else None.

    So `model.double()` makes a model of float32 types compute in float64.
    """
    modules = list(modules)
    tensors = chain(*(m.parameters() for m in modules), *(m.buffers() for m in modules))
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None)


def in_dtype(kind: TensorType, float_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of tensors of a type in a model that computes in `float_dtype`."""
    return float_dtype if float_dtype is not None and kind.is_floating_point else kind.torch_dtype
