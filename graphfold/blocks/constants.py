"""Constants: blocks whose result does not depend on the example, learned or not."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from graphfold.blocks.block import Block, convert_to_block
from graphfold.blocks.block_errors import BlockTypeError, quoted
from graphfold.blocks.contexts import Context, Depth, Evaluation, Recorder
from graphfold.blocks.inference.types import (
    BroadcastSequenceType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    TypeLike,
    VoidType,
    convert_to_type,
)
from graphfold.blocks.primitive import Primitive


@convert_to_block.register(Tensor)
@convert_to_block.register(np.ndarray)
class FromTensor(Primitive):
    """A tensor that is the same for every example.

    It costs no node: functions read it directly.

    Args:
        tensor: a tensor or an array; an `nn.Parameter` is learned, anything else is fixed.
        name: its name in messages and state dicts.
        persistent: whether state dicts hold it; they always hold a parameter.

    Raises:
        BlockTypeError: if it is neither a tensor nor an array, or requires a gradient and is no
            parameter.
    """

    is_constant: ClassVar[bool] = True

    def __init__(
        self, tensor: Tensor | np.ndarray, name: str | None = None, persistent: bool = True
    ) -> None:
        if isinstance(tensor, np.ndarray):
            tensor = torch.from_numpy(tensor.copy())
        if not isinstance(tensor, Tensor):
            raise BlockTypeError(
                f"{quoted(tensor)} is not a tensor or np.ndarray. Convert it with torch.tensor."
            )
        if tensor.requires_grad and not isinstance(tensor, nn.Parameter):
            raise BlockTypeError(
                f"a tensor of shape {list(tensor.shape)} requires a gradient but is not a "
                "parameter, so a model could not hold it. Make it an nn.Parameter."
            )
        self.module = ConstantTensor(tensor, persistent)
        kind = TensorType(tuple(tensor.shape), tensor.dtype)
        super().__init__(input_type=VoidType(), output_type=kind, name=name)

    @property
    def tensor(self) -> Tensor:
        """The tensor."""
        return self.module.value

    @property
    def operation(self) -> tuple[Hashable, str]:
        return (self.module, id(self.module.value)), self._name or "constant"

    def own_modules(self) -> Iterator[nn.Module]:
        yield self.module

    def evaluate(self, evaluation: Evaluation, x: Any) -> Tensor:
        return evaluation.cast(self.tensor, self.output_tensors[0]).unsqueeze(0)

    def lower(self, recorder: Recorder, x: Any) -> Any:
        return recorder.constant(self)

    def depth(self, depth: Depth, x: Any) -> int:
        return 0


class ConstantTensor(nn.Module):
    """Holds a tensor as a parameter or a buffer.

    Args:
        tensor: the tensor.
        persistent: whether a buffer is a part of state dicts.
    """

    value: Tensor

    def __init__(self, tensor: Tensor, persistent: bool = True) -> None:
        super().__init__()
        if isinstance(tensor, nn.Parameter):
            self.register_parameter("value", tensor)
        else:
            self.register_buffer("value", tensor, persistent)

    def forward(self) -> Tensor:
        """The tensor."""
        return self.value


class Zeros(Block):
    """Zeros of a type: zero tensors, tuples of them, empty sequences, None for void.

    Args:
        output_type: the type, or an object that converts to one.

    Raises:
        BlockTypeError: if Python objects or endless sequences are in the type.
    """

    def __init__(self, output_type: TypeLike, name: str | None = None) -> None:
        kind = convert_to_type(output_type)
        if not all(isinstance(item, TensorType) for item in kind.terminal_types()):
            raise BlockTypeError(
                f"all terminal types must be tensors: {kind}. There are no zeros of Python objects."
            )
        if isinstance(kind, BroadcastSequenceType):
            raise BlockTypeError(
                f"cannot create Zeros for an infinite sequence type: {kind}. Name a finite one."
            )
        parts = [_zeros(item) for item in kind] if isinstance(kind, TupleType) else []
        if isinstance(kind, TensorType):
            parts = [_zeros(kind)]
        super().__init__(parts, input_type=VoidType(), output_type=kind, name=name)

    def apply(self, context: Context, x: Any) -> Any:
        kind = self.output_type
        if isinstance(kind, SequenceType):
            return []
        values = [part.apply(context, None) for part in self.children]
        if isinstance(kind, TupleType):
            return tuple(values)
        return values[0] if values else None


def _zeros(kind: ResultType) -> Block:
    if isinstance(kind, TensorType):  # a state dict needs no zeros
        return FromTensor(torch.zeros(kind.shape, dtype=kind.torch_dtype), persistent=False)
    return Zeros(kind)


class Void(Block):
    """Takes anything and returns nothing."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(output_type=VoidType(), name=name)

    def apply(self, context: Context, x: Any) -> None:
        return None

    def check(self) -> None:
        """Accepts an input of unknown type."""
        self.set_input_type(self.input_type or VoidType())
