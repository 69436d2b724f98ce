"""What stands for a type, and what can be told from one."""

from __future__ import annotations

from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.types import (
    PyObjectType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    is_size,
)

#: A type, or what `convert_to_type` makes one of.
TypeLike: TypeAlias = Any


def convert_to_type(type_like: TypeLike) -> ResultType:
    """What `type_like` says.

    | given | type |
    |---|---|
    | a type | itself |
    | a tuple | a `TupleType` of its items, converted |
    | a list, such as `[3, 4, "int32"]` | a `TensorType` of that shape; float32 if none is named |
    | a `torch.Size` | a float32 `TensorType` of that shape |
    | a dtype or its name | the type of a scalar |
    | an integer | the type of a float32 vector of that length |

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
    """The type with one `PyObjectType` for each tuple or sequence of Python objects alone."""
    kind = convert_to_type(type_like)
    if isinstance(kind, TupleType) and len(kind):
        kind = TupleType(*map(canonicalize_type, kind))
        return PyObjectType() if all(isinstance(t, PyObjectType) for t in kind) else kind
    if isinstance(kind, SequenceType):
        element = canonicalize_type(kind.element_type)
        return element if isinstance(element, PyObjectType) else type(kind)(element)
    return kind


def element_type_of(kind: ResultType, whose: object) -> ResultType:
    """The type of the elements of a sequence, a tuple of equals or a Python object.

    Raises:
        BlockTypeError: if `kind` is none of these; the message says whose input it is.
    """
    if isinstance(kind, PyObjectType):
        return kind
    if isinstance(kind, SequenceType):
        return kind.element_type
    if not isinstance(kind, TupleType):
        raise BlockTypeError(
            f"{whose} expected a python object or sequence or tuple, but its input is {kind}."
        )
    if not len(kind):
        raise BlockTypeError(f"{whose} expected a non-empty tuple. Give it an item.")
    if len(set(kind)) != 1:
        raise BlockTypeError(
            f"{whose}: tuple item types must all be equal: {kind}. Give items of one type."
        )
    return kind[0]


def tensor_types(kind: ResultType) -> list[TensorType] | None:
    """The tensor types in a type of tensors and tuples of them; None if it holds anything else."""
    if isinstance(kind, TensorType):
        return [kind]
    if not isinstance(kind, TupleType):
        return None
    parts = [tensor_types(item) for item in kind]
    return None if None in parts else list(chain.from_iterable(part or () for part in parts))
