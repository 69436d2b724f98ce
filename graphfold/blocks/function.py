"""Function: a function of batches of tensors, or a module, as a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from graphfold.blocks.block import Block
from graphfold.blocks.context import Context
from graphfold.blocks.errors import BlockTypeError
from graphfold.blocks.infer import infer_output_type as infer
from graphfold.blocks.type_conversion import tensor_types
from graphfold.blocks.typed import Classes, Typed
from graphfold.blocks.types import ResultType, TensorType, TupleType
from graphfold.errors import add_note


class Function(Block):
    """A function of tensors: the only block that computes.

    Equal functions of equal types are one operation, wherever in the model they stand: the engine
    calls it once for all of its nodes that can run together. So the function gets batches, with
    the batch as the first dimension, and must treat every row for itself. Tensors that it learns
    belong to it as parameters of a module; those that it merely captures get no gradient.

    A tensor is passed as one argument, a tuple as one argument for each of its items. Nested tuples
    stay tuples, and the function may return tuples (or lists) of tensors, nested too.

    Args:
        fn: the function or module.
        name: what messages, node types and state dicts call it.
        infer_output_type: whether the output type is found by a call on tensors without values;
            if not, call `set_output_type`.

    Raises:
        BlockTypeError: if it cannot be called, or (once connected) cannot take its input.
    """

    expected_input: ClassVar[Classes] = (TupleType, TensorType)
    expected_output: ClassVar[Classes] = (TupleType, TensorType)

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, infer_output_type: bool = True
    ) -> None:
        if not callable(fn):
            raise BlockTypeError(f"fn is not callable: {fn!r}. Give a function or a module.")
        self.fn = fn
        self._infer = infer_output_type
        self._takes_tuple = False
        super().__init__(name=name)
        if isinstance(fn, Typed):
            self.set_io_types(fn)

    def own_modules(self) -> Iterator[nn.Module]:
        if isinstance(self.fn, nn.Module):
            yield self.fn

    def apply(self, context: Context, x: Any) -> Any:
        return context.call(self, x)

    @property
    def input_tensors(self) -> list[TensorType]:
        """The types of the tensors that it takes, in order."""
        return tensor_types(self.input_type) or []  # type: ignore[arg-type]

    @property
    def output_tensors(self) -> list[TensorType]:
        """The types of the tensors that it gives, in order."""
        return tensor_types(self.output_type) or []  # type: ignore[arg-type]

    def flatten(self, x: Any) -> Sequence[Any]:
        """The tensors of an instance of the input type, in order."""
        if not self._takes_tuple:
            return (x,)
        return x if self._flat_input else self.input_type.flatten(x)  # type: ignore

    def unflatten(self, flat: Sequence[Any]) -> Any:
        """An instance of the output type from its tensors."""
        if not self._gives_tuple:
            return flat[0]
        return tuple(flat) if self._flat_output else self.output_type.unflatten(iter(flat))  # type: ignore

    def compute(self, flat: Sequence[Tensor]) -> list[Tensor]:
        """The tensors that it gives for those that it takes, [batch_size, ...] each.

        Raises:
            BlockTypeError: if they are not of the output type.
        """
        assert self.input_type is not None
        size = flat[0].shape[0]
        return compute(str(self), self.fn, self.input_type, flat, self.output_tensors, size)

    def _facts(self) -> dict[str, Any]:
        return {"fn": self.fn}

    def _input_found(self, kind: ResultType) -> None:
        _require_tensors("input", kind, self)
        self._takes_tuple = isinstance(kind, TupleType)
        self._flat_input = _is_flat(kind)
        if isinstance(self.fn, Typed):
            self.set_io_types(self.fn)
        if self._infer and not (isinstance(self.fn, Typed) and self.output_type is not None):
            self.set_output_type(infer(self, self.fn, kind))

    def _output_found(self, kind: ResultType) -> None:
        _require_tensors("output", kind, self)
        self._gives_tuple = isinstance(kind, TupleType)
        self._flat_output = _is_flat(kind)
        if isinstance(self.fn, Typed):
            self.set_io_types(self.fn)


def compute(
    whose: str,
    fn: Callable[..., Any],
    kind: ResultType,
    flat: Sequence[Any],
    outputs: Sequence[TensorType],
    size: int,
) -> list[Tensor]:
    """The tensors that a function gives for a batch.

    Args:
        whose: what messages name.
        fn: the function.
        kind: the type of its input.
        flat: the tensors that it takes, [size, ...] each.
        outputs: the types of the tensors that it should give. A floating-point tensor may have any
            such dtype: it takes that of the model.
        size: the size of the batch.

    Raises:
        BlockTypeError: if it gives something else.
    """
    try:
        results = flat_outputs(fn(*arguments(kind, flat)))
    except Exception as error:
        add_note(error, f"in {whose}")
        raise
    if len(results) != len(outputs):
        raise BlockTypeError(
            f"{whose} gave {len(results)} tensors, but its output type has {len(outputs)}: "
            f"{', '.join(map(str, outputs))}. Return as many, or declare another type."
        )
    for result, output in zip(results, outputs, strict=True):
        _require_type(whose, result, output, size)
    return results


def arguments(kind: ResultType, flat: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a function that takes the type, from its flat tensors."""
    if isinstance(kind, TensorType) or _is_flat(kind):
        return flat
    found: Sequence[Any] = kind.unflatten(iter(flat))
    return found


def flat_outputs(result: Any) -> list[Any]:
    """What a function returned, without its tuples and lists."""
    if not isinstance(result, (tuple, list)):
        return [result]
    return [tensor for item in result for tensor in flat_outputs(item)]


def _require_type(whose: str, result: Any, kind: TensorType, size: int) -> None:
    if not isinstance(result, Tensor):
        raise BlockTypeError(f"{whose} gave {result!r}, which is not a tensor. Return tensors.")
    floats = kind.is_floating_point and result.is_floating_point()
    if result.shape != (size, *kind.shape) or not (floats or result.dtype == kind.torch_dtype):
        dtype = str(result.dtype).removeprefix("torch.")
        raise BlockTypeError(
            f"{whose} gave a {dtype} tensor of shape {list(result.shape)} for {size} nodes of "
            f"output type {kind}. Treat every row for itself, and return one type."
        )


def _is_flat(kind: ResultType) -> bool:
    return isinstance(kind, TupleType) and all(isinstance(item, TensorType) for item in kind)


def _require_tensors(side: str, kind: ResultType, function: Function) -> None:
    found = tensor_types(kind)
    if found is None:
        raise BlockTypeError(
            f"function {side}s must be tensors: {function} has the {side} type {kind}. Give it "
            "tensors or tuples of tensors."
        )
    if not found:
        verb = "take" if side == "input" else "return"
        raise BlockTypeError(
            f"functions must {verb} at least one tensor {side}, but {function} has the type {kind}."
        )
