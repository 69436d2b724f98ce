"""Metric: values from within a model, however many an example has."""

from __future__ import annotations

from typing import Any

from graphfold.blocks.block import Block
from graphfold.blocks.context import Context
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.types import (
    PyObjectType,
    ResultType,
    TensorType,
    TupleType,
    VoidType,
)


class Metric(Block):
    """Collects tensors under a name, with labels if there are any; gives nothing.

    The values of all examples come back as one tensor, in the order in which the blocks ran, with
    gradients: a loss may be a metric.

    Args:
        metric_name: the name, as a string; several blocks may have the same, for tensors of one
            type.

    Raises:
        BlockTypeError: if the input is neither a tensor nor (tensor, Python object).
    """

    expected_input = (TensorType, TupleType)

    def __init__(self, metric_name: object) -> None:
        super().__init__(output_type=VoidType(), name=str(metric_name))

    @property
    def tensor(self) -> TensorType:
        """The type of one value."""
        kind = self.input_type
        kind = kind[0] if isinstance(kind, TupleType) else kind
        assert isinstance(kind, TensorType)
        return kind

    def apply(self, context: Context, x: Any) -> None:
        value, label = x if isinstance(self.input_type, TupleType) else (x, None)
        context.metric(self, value, label)

    def _input_found(self, kind: ResultType) -> None:
        if not isinstance(kind, TupleType):
            return
        if len(kind) != 2:
            raise BlockTypeError(f"metric tuple input must have 2 items: {kind} of {self}.")
        if not isinstance(kind[0], TensorType):
            raise BlockTypeError(f"{self} expected a tensor type, saw: {kind[0]}.")
        if not isinstance(kind[1], PyObjectType):
            raise BlockTypeError(f"{self} expected a pyobj type, saw: {kind[1]}.")
