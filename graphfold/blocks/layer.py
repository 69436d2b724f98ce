"""Layer: a module that makes its parameters when it learns what it is connected to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from graphfold.blocks.block import Block, Pipe
from graphfold.blocks.cells import flat_outputs
from graphfold.blocks.errors import BlockTypeError, quoted
from graphfold.blocks.function import Function
from graphfold.blocks.typed import Typed
from graphfold.blocks.types import ResultType, TensorType, TupleType, TypeLike, tensor_types
from graphfold.blocks.wire import Wire


class Layer(nn.Module, Typed):
    """Base of modules with types, which may be used like blocks: `Vector(3) >> FC(5)`.

    A layer that stands in several places has one set of parameters and one input type. In `compose`
    it is called like a block; on batches of tensors like all modules, where the first batch says
    what it takes if nothing is connected to it yet.

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
        """Its tensors for a batch of tensors; in `compose` its result on other results.

        Raises:
            BlockTypeError: if it cannot take tensors of such a shape.
        """
        if any(isinstance(arg, (Wire, Block)) for arg in args):
            return Function(self)(*args)
        if self.input_type is None and args:
            kind = _type_of(args)
            with flat_outputs(args)[0].device:  # where the parameters are needed
                self.set_input_type(kind)
        try:
            return super().__call__(*args, **kwargs)
        except RuntimeError:  # torch's, which names neither the layer nor what it takes
            kind = _type_of(args)
            if _shapes(kind) != _shapes(self.input_type):
                self.set_input_type(kind)
            raise

    def __rshift__(self, other: Any) -> Block:
        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        return Pipe(other, self)

    def _input_found(self, kind: ResultType) -> None:
        self.build(kind)


def _type_of(args: Sequence[Any]) -> ResultType:
    """The input type of a function that takes these batches."""
    kinds = [_batch_type(arg) for arg in args]
    return kinds[0] if len(kinds) == 1 and isinstance(args[0], Tensor) else TupleType(*kinds)


def _batch_type(arg: Any) -> ResultType:
    if isinstance(arg, (tuple, list)):
        return TupleType(*map(_batch_type, arg))
    if not isinstance(arg, Tensor) or not arg.ndim:
        raise BlockTypeError(f"layers take batches of tensors, not {quoted(arg)}. Add a dimension.")
    return TensorType(tuple(arg.shape[1:]), arg.dtype)


def _shapes(kind: ResultType | None) -> list[tuple[int, ...]]:
    return [item.shape for item in tensor_types(kind) or ()] if kind is not None else []
