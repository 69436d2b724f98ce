"""Sums, means and extremes over a sequence, each in one node however long the sequence is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, log2
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphfold.batching import Cell
from graphfold.blocks.block_errors import BlockTypeError
from graphfold.blocks.contexts import Depth, Evaluation, Recorder
from graphfold.blocks.inference.types import (
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    element_type_of,
    refuse_endless,
)
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.running.cells import CellContext, ReductionCell


class Reduction(Primitive):
    """One tensor from any number of tensors of its type, element by element; zeros from none.

    Fold builds a balanced tree of additions or comparisons; here it is a single node, whose result
    is the same up to rounding.

    Raises:
        BlockTypeError: if the input is not a finite sequence, or a tuple of equals, of tensors.
    """

    expected_input = (TupleType, SequenceType)
    expected_output = (TensorType,)

    #: Its name in `torch.scatter_reduce`, for integers; None if it refuses integers.
    scatter: ClassVar[str | None] = None

    #: From rows [n, ...] with n > 0, and the dimension 0, to [...].
    reduce_rows: ClassVar[Any]

    #: From `Children` and a field of floating-point numbers to [group_size, width].
    reduce_children: ClassVar[Any]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

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
        return evaluation.cast(self.reduce_rows(torch.stack(list(x)), 0), self.tensor)

    def lower(self, recorder: Recorder, x: Sequence[Any]) -> Any:
        return recorder.reduction(self, x, self.tensor)

    def depth(self, depth: Depth, x: Sequence[int]) -> int:
        return max(x, default=0) + (ceil(log2(len(x))) if x else 0)

    def cell(self, context: CellContext) -> Cell:
        return ReductionCell(self.reduce_children, self.scatter, self.tensor, context)

    def _infer_from_input(self, kind: ResultType) -> None:
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
    reduce_rows = staticmethod(torch.sum)
    reduce_children = staticmethod(lambda children, field: children.sum(field))


class Min(Reduction):
    """The smallest of the elements, number by number; zeros of none."""

    scatter = "amin"
    reduce_rows = staticmethod(torch.amin)
    # Zero minus, since the minimum of nothing is 0 and not -0.
    reduce_children = staticmethod(lambda children, field: 0 - children.max(-children.rows(field)))


class Max(Reduction):
    """The largest of the elements, number by number; zeros of none."""

    scatter = "amax"
    reduce_rows = staticmethod(torch.amax)
    reduce_children = staticmethod(lambda children, field: children.max(field))


class Mean(Reduction):
    """The mean of the elements; zeros of none. Raises BlockTypeError for integers."""

    reduce_rows = staticmethod(torch.mean)
    reduce_children = staticmethod(lambda children, field: children.mean(field))

    def depth(self, depth: Depth, x: Sequence[int]) -> int:
        return 1 + super().depth(depth, x)
