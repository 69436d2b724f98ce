"""Sums, means and extremes over a sequence, each in one node however long the sequence is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, log2
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphfold.batching import Cell, Children
from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.core import Depth, Evaluation, Primitive, Recorder
from graphfold.blocks.inference.types import (
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    element_type_of,
    refuse_endless,
)
from graphfold.blocks.running.cells import CellContext, ReductionCell


class Reduction(Primitive):
    """One tensor from any number of tensors of its type, element by element; zeros from none.

    Fold builds a balanced tree of additions or comparisons; here it is a single node, which gives
    the same up to rounding.

    Raises:
        BlockTypeError: if the input is not a finite sequence, or a tuple of equals, of tensors.
    """

    expected_input = (TupleType, SequenceType)
    expected_output = (TensorType,)

    #: Its name in `torch.scatter_reduce`, for integers; None if it takes none.
    scatter: ClassVar[str | None] = None

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    @staticmethod
    def reduce_rows(rows: Tensor) -> Tensor:
        """[...] from [n, ...], which are not empty."""
        raise NotImplementedError

    @staticmethod
    def reduce_children(children: Children, field: str) -> Tensor:
        """[group_size, width] from a field of the children, of floating-point numbers."""
        raise NotImplementedError

    @property
    def tensor(self) -> TensorType:
        """The type of the tensors."""
        assert isinstance(self.output_type, TensorType)
        return self.output_type

    @property
    def operation(self) -> tuple[Hashable, str]:
        return (type(self), self.tensor), type(self).__name__.lower()

    def evaluate(self, evaluation: Evaluation, x: Sequence[Tensor]) -> Tensor:
        if not x:
            return evaluation.zeros(self.tensor)
        return evaluation.cast(self.reduce_rows(torch.stack(list(x))), self.tensor)

    def lower(self, recorder: Recorder, x: Sequence[Any]) -> Any:
        return recorder.reduction(self, x, self.tensor)

    def depth(self, depth: Depth, x: Sequence[int]) -> int:
        return max(x, default=0) + (ceil(log2(len(x))) if x else 0)

    def cell(self, context: CellContext) -> Cell:
        return ReductionCell(self.reduce_children, self.scatter, self.tensor, context)

    def _input_found(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "reduce")
        element = element_type_of(kind, self)
        if not isinstance(element, TensorType):
            raise BlockTypeError(
                f"{self} takes sequences of tensors, but its elements are {element}. Use Reduce."
            )
        if self.scatter is None and not element.is_floating_point:
            raise BlockTypeError(
                f"{self} takes floating-point tensors, but its elements are {element}. Read them "
                "with dtype='float32'."
            )
        self.set_output_type(element)


class Sum(Reduction):
    """The sum of the elements; zeros of none."""

    scatter = "sum"

    @staticmethod
    def reduce_rows(rows: Tensor) -> Tensor:
        return rows.sum(0)

    @staticmethod
    def reduce_children(children: Children, field: str) -> Tensor:
        return children.sum(field)


class Min(Reduction):
    """The smallest of the elements, number by number; zeros of none."""

    scatter = "amin"

    @staticmethod
    def reduce_rows(rows: Tensor) -> Tensor:
        return rows.amin(0)

    @staticmethod
    def reduce_children(children: Children, field: str) -> Tensor:
        # Zero minus, since the minimum of nothing is 0 and not -0.
        return 0 - children.max(-children.rows(field))


class Max(Reduction):
    """The largest of the elements, number by number; zeros of none."""

    scatter = "amax"

    @staticmethod
    def reduce_rows(rows: Tensor) -> Tensor:
        return rows.amax(0)

    @staticmethod
    def reduce_children(children: Children, field: str) -> Tensor:
        return children.max(field)


class Mean(Reduction):
    """The mean of the elements; zeros of none. Raises BlockTypeError for integers."""

    @staticmethod
    def reduce_rows(rows: Tensor) -> Tensor:
        return rows.mean(0)

    @staticmethod
    def reduce_children(children: Children, field: str) -> Tensor:
        return children.mean(field)

    def depth(self, depth: Depth, x: Sequence[int]) -> int:
        return 1 + super().depth(depth, x)
