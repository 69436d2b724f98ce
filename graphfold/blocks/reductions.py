"""Sums, means and extremes over a sequence, each in one node however long the sequence is."""

from __future__ import annotations

from typing import Any, ClassVar

from graphfold.blocks.block import Block
from graphfold.blocks.context import Context
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.folds import refuse_endless
from graphfold.blocks.type_conversion import element_type_of
from graphfold.blocks.types import ResultType, SequenceType, TensorType, TupleType


class Reduction(Block):
    """One tensor from any number of tensors of its type, element by element; zeros from none.

    Fold builds a balanced tree of additions or comparisons; here it is a single node, which gives
    the same up to rounding.

    Args:
        name: its name.

    Raises:
        BlockTypeError: if the input is not a finite sequence, or a tuple of equals, of tensors.
    """

    expected_input = (TupleType, SequenceType)
    expected_output = (TensorType,)

    #: "sum", "mean", "min" or "max".
    how: ClassVar[str]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)

    @property
    def tensor(self) -> TensorType:
        """The type of the tensors."""
        assert isinstance(self.output_type, TensorType)
        return self.output_type

    def apply(self, context: Context, x: Any) -> Any:
        return context.reduce(self, x)

    def _input_found(self, kind: ResultType) -> None:
        refuse_endless(kind, self, "reduce")
        element = element_type_of(kind, self)
        if not isinstance(element, TensorType):
            raise BlockTypeError(
                f"{self} takes sequences of tensors, but its elements are {element}. Use Reduce."
            )
        self.set_output_type(element)


class Sum(Reduction):
    """The sum of the elements; zeros of none."""

    how = "sum"


class Min(Reduction):
    """The smallest of the elements, number by number; zeros of none."""

    how = "min"


class Max(Reduction):
    """The largest of the elements, number by number; zeros of none."""

    how = "max"


class Mean(Reduction):
    """The mean of the elements; zeros of none. Raises BlockTypeError for integers."""

    how = "mean"

    def _input_found(self, kind: ResultType) -> None:
        super()._input_found(kind)
        if not self.tensor.is_floating_point:
            raise BlockTypeError(
                f"{self} takes floating-point tensors, but its elements are {self.tensor}. Read "
                "them with dtype='float32'."
            )
