"""Blocks that select Python objects, items and lengths; none of them makes a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphfold.blocks.block import Block
from graphfold.blocks.block_errors import (
    BlockIndexError,
    BlockItemError,
    BlockKeyError,
    BlockTypeError,
    BlockValueError,
    quoted,
)
from graphfold.blocks.contexts import Context
from graphfold.blocks.inference.types import (
    PyObjectType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    pair_of,
    refuse_endless,
)
from graphfold.errors import add_note


class InputTransform(Block):
    """A function of Python objects.

    Args:
        py_fn: the function. Its exceptions are passed on, with a note.
        name: its name in messages.

    Raises:
        BlockTypeError: if it is not callable.
    """

    def __init__(self, py_fn: Callable[[Any], Any], name: str | None = None) -> None:
        if not callable(py_fn):
            raise BlockTypeError(f"py_fn is not callable: {py_fn!r}. Give a function.")
        self.py_fn = py_fn
        self._facts = {"py_fn": py_fn}
        super().__init__(input_type=PyObjectType(), output_type=PyObjectType(), name=name)

    def apply(self, context: Context, x: Any) -> Any:
        try:
            return self.py_fn(x)
        except Exception as error:
            add_note(error, f"in {self} of {quoted(x)}")
            raise


class GetItem(Block):
    """`x[key]` of a Python object, a tuple or a finite sequence.

    Args:
        key: the key, a position or a slice.

    Raises:
        BlockTypeError: if the input is none of these, or a tuple without such an item.
        BlockKeyError: if the object of an example lacks the key.
        BlockIndexError: if the sequence of an example is too short.
    """

    expected_input = (PyObjectType, TupleType, SequenceType)

    def __init__(self, key: Any, name: str | None = None) -> None:
        self.key = key
        self._facts = {"key": key}
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return item_of(x, self.key, self)

    def _infer_from_input(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "get an item from")
        if isinstance(kind, TupleType):
            self.set_output_type(_items(kind, self.key, self))
        elif isinstance(kind, SequenceType) and not isinstance(self.key, slice):
            self.set_output_type(kind.element_type)
        else:
            self.set_output_type(kind)


def Slice(
    *args: Any,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    name: str | None = None,
) -> Block:
    """`x[start:stop:step]` of a Python object, a tuple or a finite sequence.

    Args:
        *args: refused; a single number could be the start or the stop.
        start: as in Python.
        stop: as in Python.
        step: as in Python; -1 reverses.
        name: its name in messages.

    Raises:
        BlockTypeError: if there is a positional argument.
        BlockValueError: if the step is 0.
    """
    if args:
        raise BlockTypeError(
            "Slice does not accept positional arguments. Name start, stop or step."
        )
    if step == 0:
        raise BlockValueError("the step of a Slice cannot be zero. Give 1, or leave it out.")
    return GetItem(slice(start, stop, step), name).set_constructor_name("Slice")


class Length(Block):
    """The number of items in a Python object, a sequence or a tuple.

    Args:
        dtype: the dtype of the number.
    """

    expected_input = (PyObjectType, SequenceType, TupleType)

    def __init__(self, dtype: Any = "float32", name: str | None = None) -> None:
        self._tensor = TensorType((), dtype)
        self._facts = {"dtype": self._tensor.dtype}
        super().__init__(output_type=self._tensor, name=name)

    def apply(self, context: Context, x: Any) -> Any:
        try:
            length = len(x)
        except TypeError as error:
            raise BlockTypeError(
                f"{self} cannot tell the length of {quoted(x)}. Correct the example."
            ) from error
        return context.from_example(self._tensor, np.asarray(length, self._tensor.numpy_dtype))

    def _infer_from_input(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "get the length of")


class Nth(Block):
    """`x[n]` of (x, n): a finite sequence and a Python integer.

    Raises:
        BlockTypeError: if the input is something else.
        BlockIndexError: if the sequence of an example is too short.
    """

    expected_input = (TupleType,)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return item_of(x[0], x[1], self)

    def _infer_from_input(self, kind: ResultType) -> None:
        sequence, number = pair_of(kind, f"(sequence, PyObject) by {self}")
        refuse_endless(sequence, self, "get an item from")
        if not isinstance(sequence, SequenceType) or not isinstance(number, PyObjectType):
            raise BlockTypeError(f"Nth takes (sequence, PyObject), not {kind}. Use GetItem.")
        self.set_output_type(sequence.element_type)


def item_of(x: Any, key: Any, block: object) -> Any:
    """`x[key]`.

    Raises:
        BlockTypeError: if x cannot be indexed by such a key.
        BlockKeyError: if x lacks the key.
        BlockIndexError: if x is too short.
    """
    try:
        return x[key]
    except KeyError as error:
        raise BlockKeyError(
            f"{block}: there is no key {key!r} in {quoted(x)}. Correct the example, or "
            "use Optional."
        ) from error
    except IndexError as error:
        raise BlockIndexError(
            f"{block}: there is no item {key!r} among {len(x)} of {quoted(x)}. Correct the example."
        ) from error
    except TypeError as error:
        raise BlockTypeError(
            f"{block}: {quoted(x)} cannot be asked for {key!r}: {error}. Correct the example."
        ) from error


def elements_of(x: Any, block: object) -> Iterator[Any]:
    """The elements of x, one by one.

    Raises:
        BlockTypeError: if x is not iterable.
    """
    try:
        return iter(x)
    except TypeError as error:
        raise BlockTypeError(
            f"{block}: {quoted(x)} has no elements. Correct the example, or use Optional."
        ) from error


def _items(kind: TupleType, key: Any, block: object) -> ResultType:
    if not isinstance(key, (int, slice)):
        raise BlockTypeError(
            f"{block} asks a tuple of type {kind} for the item {key!r}. Give an integer or a slice."
        )
    try:
        return kind[key]
    except IndexError as error:
        raise BlockItemError(
            f"{block} asks a tuple of {len(kind)} items for the item {key}: {kind}. Give a "
            "position that it has."
        ) from error
