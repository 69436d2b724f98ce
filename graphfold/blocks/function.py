"""Function: a block of a module or a function of batches of tensors; Concat is an example."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphfold.batching import Cell
from graphfold.blocks.block import convert_to_block
from graphfold.blocks.block_errors import BlockTypeError, BlockValueError, quoted
from graphfold.blocks.contexts import Depth, Evaluation, Recorder
from graphfold.blocks.inference.infer import infer_output_type
from graphfold.blocks.inference.typed import Classes, Typed
from graphfold.blocks.inference.types import (
    ResultType,
    TensorType,
    TupleType,
    is_size,
    tensor_types,
)
from graphfold.blocks.primitive import Primitive
from graphfold.blocks.running.cells import (
    CellContext,
    FunctionCell,
    LeafCell,
    compute,
    flat_outputs,
    is_flat,
)


@convert_to_block.register(Callable)  # type: ignore[call-overload]
class Function(Primitive):
    """A function of tensors: the block that computes.

    Equal functions of equal types are one operation, wherever in the model they are: the engine
    calls it once for all of its nodes that can run together. So the function gets batches, with the
    batch as the first dimension, and must treat every row separately. Learned tensors must be
    parameters of the module; tensors that a function captures get no gradient.

    A tensor is passed as one argument, a tuple as one argument for each of its items. Nested tuples
    stay tuples, and the function may return tuples (or lists) of tensors, nested too.

    Args:
        fn: the function or module.
        name: its name in messages, node types and state dicts.
        infer_output_type: whether a trial call gives the output type; if not, call
            `set_output_type`.

    Raises:
        BlockTypeError: if it cannot be called, or (once connected) cannot take its input.
    """

    expected_input: ClassVar[Classes] = (TupleType, TensorType)
    expected_output: ClassVar[Classes] = (TupleType, TensorType)

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, infer_output_type: bool = True
    ) -> None:
        if not callable(fn):
            raise BlockTypeError(f"fn is not callable: {quoted(fn)}. Give a function or a module.")
        self.fn = fn
        self._facts = {"fn": fn}
        self._infer = infer_output_type
        self._takes_tuple = False
        super().__init__(name=name)
        if isinstance(fn, Typed):
            self.set_io_types(fn)

    def own_modules(self) -> Iterator[nn.Module]:
        if isinstance(self.fn, nn.Module):
            yield self.fn

    @property
    def operation(self) -> tuple[Hashable, str]:
        fn = self.fn if isinstance(self.fn, Hashable) else id(self.fn)
        return (fn, self.input_type, self.output_type), self._name or _plain_name(self.fn)

    def evaluate(self, evaluation: Evaluation, x: Any) -> Any:
        assert self.input_type is not None
        kinds, flat = self.output_tensors, self.flatten(x)
        results = compute(str(self), self.fn, self.input_type, flat, kinds, flat[0].shape[0])
        return self.unflatten([evaluation.cast(t, k) for t, k in zip(results, kinds, strict=True)])

    def lower(self, recorder: Recorder, x: Any) -> Any:
        return self.unflatten(recorder.node(self, self.flatten(x)))

    def depth(self, depth: Depth, x: Any) -> Any:
        return self.unflatten([1 + max(self.flatten(x))] * len(self.output_tensors))

    def cell(self, context: CellContext) -> Cell:
        assert self.input_type is not None
        cell = FunctionCell(self.fn, str(self), self.input_type, self.output_tensors, context)
        return cell if cell.arity else LeafCell(cell)

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

    def _infer_from_input(self, kind: ResultType) -> None:
        _require_tensors("input", kind, self)
        self._takes_tuple = isinstance(kind, TupleType)
        self._flat_input = is_flat(kind)
        if isinstance(self.fn, Typed):
            self.set_io_types(self.fn)
        if self._infer and not (isinstance(self.fn, Typed) and self.output_type is not None):
            self.set_output_type(infer_output_type(self, self.fn, kind))

    def _infer_from_output(self, kind: ResultType) -> None:
        _require_tensors("output", kind, self)
        self._gives_tuple = isinstance(kind, TupleType)
        self._flat_output = is_flat(kind)
        if isinstance(self.fn, Typed):
            self.set_io_types(self.fn)


class Concat(Function):
    """Concatenates a tuple of tensors; scalars count as vectors of one number.

    Args:
        concat_dim: the dimension to concatenate along, not counting the batch.
        flatten: whether the tensors of nested tuples are concatenated too, in order.

    Raises:
        BlockTypeError: if the input is no tuple of tensors, or these differ in dtype or in the
            other dimensions.
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
        self._facts = {"concat_dim": concat_dim, "flatten": flatten}

    def _infer_from_input(self, kind: ResultType) -> None:
        assert isinstance(kind, TupleType)
        self._check(kind)
        super()._infer_from_input(kind)
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


@dataclass(frozen=True)
class _Concatenate:
    """Equal for equal dimensions, so that all such blocks are one operation."""

    dim: int
    __name__ = "concat"

    def __call__(self, *items: Any) -> Tensor:
        tensors = flat_outputs(items)
        return torch.cat([t.unsqueeze(1) if t.dim() == 1 else t for t in tensors], self.dim + 1)


def _require_tensors(side: str, kind: ResultType, function: Function) -> None:
    tensors = tensor_types(kind)
    if tensors is None:
        raise BlockTypeError(
            f"function {side}s must be tensors: {function} has the {side} type {kind}. Give it "
            "tensors or tuples of tensors."
        )
    if not tensors:
        verb = "take" if side == "input" else "return"
        raise BlockTypeError(
            f"functions must {verb} at least one tensor {side}, but {function} has the type {kind}."
        )


def _plain_name(fn: object) -> str:
    if isinstance(fn, nn.Module):
        return str(getattr(fn, "name", None) or type(fn).__name__)
    fn = getattr(fn, "func", fn)  # of a partial
    name = getattr(fn, "__name__", type(fn).__name__)
    return "function" if name == "<lambda>" else str(name)
