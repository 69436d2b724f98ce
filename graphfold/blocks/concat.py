"""Concat: several tensors into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphfold.blocks.errors import BlockTypeError, BlockValueError
from graphfold.blocks.function import Function, flat_outputs
from graphfold.blocks.type_conversion import tensor_types
from graphfold.blocks.typed import Classes
from graphfold.blocks.types import ResultType, TensorType, TupleType, is_size


class Concat(Function):
    """Concatenates a tuple of tensors; scalars count as vectors of one number.

    Args:
        concat_dim: the dimension to concatenate along, not counting the batch.
        flatten: whether the tensors of nested tuples are concatenated too, in order.
        name: its name.

    Raises:
        BlockTypeError: if there is nothing but a tuple of tensors of one dtype and of one shape in
            the other dimensions.
        BlockValueError: if the dimension is negative.
    """

    expected_input: ClassVar[Classes] = (TupleType,)
    expected_output: ClassVar[Classes] = (TensorType,)

    def __init__(self, concat_dim: int = 0, flatten: bool = False, name: str | None = None):
        if not is_size(concat_dim):
            raise BlockValueError(
                f"concat_dim must be a dimension, counted from 0 after the batch: {concat_dim!r}."
            )
        self._concat_dim = concat_dim
        self._flatten = flatten
        super().__init__(_Concatenate(concat_dim), name, infer_output_type=False)

    def _input_found(self, kind: ResultType) -> None:
        assert isinstance(kind, TupleType)
        self._check(kind)
        super()._input_found(kind)
        self.set_output_type(self._joined(tensor_types(kind) or []))

    def _check(self, kind: TupleType) -> None:
        tensors = tensor_types(kind)
        if tensors is None:
            raise BlockTypeError(f"Concat inputs must be tensors: {kind} of {self}.")
        if not tensors:
            raise BlockTypeError(f"Concat requires at least one tensor as input: {kind}.")
        if not self._flatten and any(isinstance(item, TupleType) for item in kind):
            raise BlockTypeError(
                f"input type {kind} of {self} contains nested tuples, expected a flat tuple of "
                "tensors; set flatten=True in the constructor."
            )

    def _joined(self, tensors: list[TensorType]) -> TensorType:
        dim, first, size = self._concat_dim, None, 0
        for number, tensor in enumerate(tensors):
            shape: list[int | None] = list(tensor.shape or (1,))
            if len(shape) <= dim:
                raise BlockTypeError(
                    f"Concat argument {number} of type {tensor} has rank less than {dim + 1}. "
                    "Lower concat_dim."
                )
            size += shape[dim] or 0
            shape[dim] = None
            first = first or shape
            if shape != first:
                raise BlockTypeError(
                    f"Shapes for concat don't match: {first} vs. {shape} (None is joined)."
                )
            if tensor.dtype != tensors[0].dtype:
                raise BlockTypeError(
                    f"Cannot concat tensors of different dtypes: {tensors[0].dtype} vs. "
                    f"{tensor.dtype}. Read them with one dtype."
                )
        assert first is not None
        return TensorType([size if s is None else s for s in first], tensors[0].dtype)

    def _facts(self) -> dict[str, Any]:
        return {"concat_dim": self._concat_dim, "flatten": self._flatten}


@dataclass(frozen=True)
class _Concatenate:
    """Equal for equal dimensions, so that all such blocks are one operation."""

    dim: int
    __name__ = "concat"

    def __call__(self, *items: Any) -> Tensor:
        tensors = flat_outputs(items)
        return torch.cat([t.unsqueeze(1) if t.dim() == 1 else t for t in tensors], self.dim + 1)
