"""Layer: a module that makes its parameters when it learns what it is connected to."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

from graphfold.blocks.block import Block
from graphfold.blocks.function import Function
from graphfold.blocks.type_conversion import TypeLike
from graphfold.blocks.typed import Typed
from graphfold.blocks.types import ResultType
from graphfold.blocks.wire import Wire


class Layer(nn.Module, Typed):
    """Base of modules with types, which may be used like blocks: `Vector(3) >> FC(5)`.

    A layer that stands in several places has one set of parameters and one input type. In `compose`
    it is called like a block; once it is connected, on batches of tensors like all modules.

    Args:
        input_type: what it takes, if known.
        output_type: what it gives, if known.
        name: what messages and state dicts call it.
    """

    #: Keeps numpy arrays from taking `array >> layer` apart.
    __array_ufunc__ = None

    def __init__(
        self,
        input_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
        name: str | None = None,
    ) -> None:
        nn.Module.__init__(self)
        Typed.__init__(self, input_type, output_type, name)

    @abstractmethod
    def build(self, kind: ResultType) -> None:
        """Makes the parameters for an input type; called once.

        Raises:
            BlockTypeError: if the layer cannot take it.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Its tensors for a batch of tensors; in `compose` its result on other results."""
        if any(isinstance(arg, (Wire, Block)) for arg in args):
            return Function(self)(*args)
        return super().__call__(*args, **kwargs)

    def __rshift__(self, other: Any) -> Block:
        from graphfold.blocks.compose import Pipe

        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        from graphfold.blocks.compose import Pipe

        return Pipe(other, self)

    def _input_found(self, kind: ResultType) -> None:
        self.build(kind)
