"""Blocks that turn Python objects into tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from graphfold.blocks.block import Block
from graphfold.blocks.block_errors import (
    BlockDuplicateError,
    BlockIndexError,
    BlockKeyError,
    BlockTypeError,
    BlockValueError,
    quoted,
)
from graphfold.blocks.contexts import Context
from graphfold.blocks.inference.types import PyObjectType, TensorType


class Tensor(Block):
    """A tensor from numbers in nested lists, or from an array.

    Args:
        shape: the shape, [] for a single number.
        dtype: the dtype.

    Raises:
        BlockTypeError: if an example has another shape.
        BlockValueError: if an example holds something else, or numbers that the dtype cannot hold.
    """

    def __init__(self, shape: Sequence[int], dtype: Any = "float32", name: str | None = None):
        self._tensor = TensorType(shape, dtype)
        self._numpy = self._tensor.numpy_dtype
        self._facts = {"dtype": self._tensor.dtype, "shape": self._tensor.shape}
        super().__init__(input_type=PyObjectType(), output_type=self._tensor, name=name)

    def apply(self, context: Context, x: Any) -> Any:
        try:
            with np.errstate(over="raise", invalid="raise"):
                value = np.asarray(x, self._numpy)
            if self._numpy.kind in "biu":
                self._require_whole(x, value)
        except FloatingPointError as error:
            raise self._no_numbers(x, f"out of bounds for {self._tensor.dtype}") from error
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise self._no_numbers(x, error) from error
        if x is None or (value.ndim and _holds_none(x, value)):
            raise self._no_numbers(x, "numpy would read None as nan")
        if value.shape != self._tensor.shape:
            raise BlockTypeError(
                f"{self} makes tensors of shape {list(self._tensor.shape)}, but "
                f"{quoted(x)} has the shape {list(value.shape)}. Correct the example, or "
                "the shape."
            )
        return context.from_example(self._tensor, value)

    def _require_whole(self, x: Any, value: np.ndarray) -> None:
        """Raises ValueError for numbers that an integer dtype, or bool, cannot hold."""
        if type(x) is int and self._numpy.kind != "b":  # numpy itself refuses a larger one
            return
        wide = np.asarray(x).astype(np.float64)
        for number in wide[wide != value]:
            fault = "out of bounds" if number == np.trunc(number) else "not whole, as needed"
            raise ValueError(f"{number:g} is {fault} for {self._tensor.dtype}")

    def _no_numbers(self, x: Any, fault: object) -> BlockValueError:
        reason = str(fault).rstrip(".")
        return BlockValueError(f"{self} cannot make {quoted(x)} a tensor: {reason}. Give numbers.")


def Scalar(dtype: Any = "float32", name: str | None = None) -> Block:
    """A tensor from a single number.

    Args:
        dtype: the dtype. Differences from Fold, which changes such numbers: an integer dtype
            refuses 2.5, and a floating-point one a number that would become infinite.
    """
    return _short("Scalar", Tensor((), dtype, name))


def Vector(size: int, dtype: Any = "float32", name: str | None = None) -> Block:
    """A tensor from a list of numbers.

    Args:
        size: the number of numbers.
        dtype: the dtype.
    """
    return _short("Vector", Tensor((size,), dtype, name), size=size)


def _short(kind: str, block: Tensor, **facts: Any) -> Block:
    """A tensor block under a name that says its shape."""
    block._facts = {"dtype": block._facts["dtype"], **facts}
    return block.set_constructor_name(kind)


class _Places(Block):
    """A vector of zeros, with a one at the place of an object.

    Args:
        elements: the objects, hashable and all different.
        dtype: the dtype of the vector.
        strict: whether an unknown object is an error; if not, its vector is zero.
    """

    def __init__(
        self, elements: Iterable[Hashable], dtype: Any, strict: bool, name: str | None
    ) -> None:
        self._place = {element: place for place, element in enumerate(elements)}
        self._strict = strict
        self._tensor = TensorType((len(self._place),), dtype)
        self._zeros = np.zeros(len(self._place), self._tensor.numpy_dtype)
        super().__init__(input_type=PyObjectType(), output_type=self._tensor, name=name)

    def apply(self, context: Context, x: Any) -> Any:
        row = self._zeros.copy()
        try:
            row[self._place[x]] = 1
        except (KeyError, TypeError) as error:
            if self._strict:
                raise BlockKeyError(
                    f"{self} has no place for {quoted(x)}. Correct the example, or add it.", key=x
                ) from error
        return context.from_example(self._tensor, row)


class OneHot(_Places):
    """A vector of zeros, with a one at the place of an integer.

    Args:
        start: the first integer that has a place.
        stop: the last one plus one; None for places from 0 to `start` minus 1.
        dtype: the dtype of the vector.

    Raises:
        BlockTypeError: if the ends are no integers.
        BlockIndexError: if there are no places.
        BlockKeyError: if an example has no place.
    """

    def __init__(
        self, start: int, stop: int | None = None, dtype: Any = "float32", name: str | None = None
    ) -> None:
        self._start, self._stop = (0, start) if stop is None else (start, stop)
        if not (isinstance(self._start, int) and isinstance(self._stop, int)):
            raise BlockTypeError(
                f"OneHot takes integers, not {self._start!r} and {self._stop!r}. Use "
                "OneHotFromList for other objects."
            )
        if self._stop <= self._start:
            raise BlockIndexError(f"range [{self._start}, {self._stop}) is empty. Widen it.")
        super().__init__(range(self._start, self._stop), dtype, True, name)
        self._facts = {"dtype": self._tensor.dtype, "start": self._start, "stop": self._stop}


class OneHotFromList(_Places):
    """A vector of zeros, with a one at the position of an object in a list.

    Args:
        elements: the list; its elements are hashable.
        dtype: the dtype of the vector.
        strict: whether an unknown object is an error; if not, its vector is zero.

    Raises:
        BlockTypeError: if the elements are no such list.
        BlockDuplicateError: if an element occurs twice.
        BlockValueError: if the list is empty.
        BlockKeyError: if an example is not in the list, and `strict` is set.
    """

    def __init__(
        self,
        elements: Sequence[Hashable],
        dtype: Any = "float32",
        strict: bool = True,
        name: str | None = None,
    ) -> None:
        try:
            elements = list(elements)
            different = len(set(elements))
        except TypeError as error:
            raise BlockTypeError(
                f"OneHotFromList takes a list of objects that can be keys of a dict: {error}."
            ) from error
        if not elements:
            raise BlockValueError("OneHotFromList needs at least one element.")
        if different != len(elements):
            raise BlockDuplicateError(
                "OneHotFromList was passed duplicate elements. Name each of them once."
            )
        super().__init__(elements, dtype, strict, name)


def _holds_none(x: Any, value: np.ndarray) -> bool:
    if value.dtype.kind != "f" or not np.isnan(value).any():
        return False
    return any(item is None for item in np.asarray(x, object).flat)
