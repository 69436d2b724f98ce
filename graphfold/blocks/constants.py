"""Constants: what does not depend on the example, learned or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphfold.blocks.block import Block
from graphfold.blocks.context import Context
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.type_conversion import TypeLike, convert_to_type
from graphfold.blocks.types import (
    BroadcastSequenceType,
    ResultType,
    SequenceType,
    TensorType,
    TupleType,
    VoidType,
)


class FromTensor(Block):
    """A tensor that is the same for every example.

    It costs no node: functions read it directly.

    Args:
        tensor: a tensor or an array; an `nn.Parameter` is learned, anything else stays as it is.
        name: what messages and state dicts call it.

    Raises:
        BlockTypeError: if it is neither a tensor nor an array, or would be learned and is no
            parameter.
    """

    def __init__(self, tensor: Tensor | np.ndarray, name: str | None = None) -> None:
        if isinstance(tensor, np.ndarray):
            tensor = torch.from_numpy(tensor.copy())
        if not isinstance(tensor, Tensor):
            raise BlockTypeError(
                f"{tensor!r} is not a tensor or np.ndarray. Convert it with torch.tensor."
            )
        if tensor.requires_grad and not isinstance(tensor, nn.Parameter):
            raise BlockTypeError(
                f"a tensor of shape {list(tensor.shape)} requires a gradient but is not a "
                "parameter, so a model could not hold it. Make it an nn.Parameter."
            )
        self.module = ConstantTensor(tensor)
        kind = TensorType(tuple(tensor.shape), tensor.dtype)
        super().__init__(input_type=VoidType(), output_type=kind, name=name)

    @property
    def tensor(self) -> Tensor:
        """The tensor."""
        return self.module.value

    def own_modules(self) -> Iterator[nn.Module]:
        yield self.module

    def apply(self, context: Context, x: Any) -> Any:
        return context.constant(self)


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


def Zeros(output_type: TypeLike, name: str | None = None) -> Block:
    """A block that gives zeros, in tuples as the type says; sequences are empty, voids void.

    Args:
        output_type: the type, or what converts to one.
        name: its name.

    Raises:
        BlockTypeError: if Python objects or endless sequences are in the type.
    """
    from graphfold.blocks.record import AllOf, Record

    kind = convert_to_type(output_type)
    if not all(isinstance(item, TensorType) for item in kind.terminal_types()):
        raise BlockTypeError(
            f"all terminal types must be tensors: {kind}. There are no zeros of Python objects."
        )
    block: Block
    if isinstance(kind, TensorType):
        zeros = FromTensor(torch.zeros(kind.shape, dtype=kind.torch_dtype), name)
        zeros.module = ConstantTensor(zeros.tensor, persistent=False)  # a state dict needs no zeros
        block = zeros
    elif isinstance(kind, TupleType):
        parts = [Zeros(item) for item in kind]
        block = AllOf(*parts, name=name) if parts else Record([], name)
        block.set_input_type(VoidType() if parts else None)
    elif isinstance(kind, BroadcastSequenceType):
        raise BlockTypeError(
            f"cannot create Zeros for an infinite sequence type: {kind}. Name a finite one."
        )
    else:
        block = _Nothing(kind, name)
    return block.set_constructor_name("Zeros")


class _Nothing(Block):
    """The empty sequence, or void."""

    def __init__(self, kind: ResultType, name: str | None) -> None:
        super().__init__(input_type=VoidType(), output_type=kind, name=name)

    def apply(self, context: Context, x: Any) -> Any:
        return [] if isinstance(self.output_type, SequenceType) else None


class _Void(Block):
    """Nothing, of anything."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(output_type=VoidType(), name=name)

    def apply(self, context: Context, x: Any) -> None:
        return None

    def check(self) -> None:
        """Whatever is put in is accepted, even if nothing says what it is."""
        self.set_input_type(self.input_type or VoidType())


def Void(name: str | None = None) -> Block:
    """A block that takes anything and gives nothing."""
    return _Void(name)
