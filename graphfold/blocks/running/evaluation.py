"""Runs of one example through blocks: its value, which is slow and says what is right; its depth.

Lowering runs examples through the same blocks (`graphfold.blocks.running.lowering`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphfold.blocks.inference.checks import check_blocks
from graphfold.blocks.inference.types import PyObjectType, ResultType, TensorType

if TYPE_CHECKING:
    from graphfold.blocks.block import Block, Steps
    from graphfold.blocks.primitive import Primitive


class Context(ABC):
    """Base of the runs: tensors are computed (eval), recorded (lowering) or counted (depth).

    What a tensor is while it is in flight is the context's own business; blocks only pass it on.
    Tuples are tuples then, sequences lists, and endless ones `itertools.repeat`.

    Attributes:
        active: (id of a declared block, id of what it is given) -> how often that runs inside of
            itself.
    """

    def __init__(self) -> None:
        self.active: dict[tuple[int, int], int] = {}

    @abstractmethod
    def from_example(self, kind: TensorType, value: np.ndarray) -> Any:
        """A tensor that the example holds, given as an array of the type."""

    @abstractmethod
    def visit(self, primitive: Primitive, x: Any) -> Any:
        """The result of a primitive block on its input."""


def run(block: Block, context: Context, x: Any) -> Any:
    """The result of a block on one value.

    The blocks that wait for a child stand on a stack of our own, so the depth of the example is not
    limited by that of Python's.
    """
    stack: list[Steps] = []
    while True:
        if block.is_simple:
            value = block.apply(context, x)
        else:
            stack.append(block.steps(context, x))
            value = None
        while True:
            if not stack:
                return value
            try:
                block, x = stack[-1].send(value)
                break
            except StopIteration as result:
                stack.pop()
                value = result.value


class Evaluation(Context):
    """Computes at once; a tensor in flight is a batch of one.

    Args:
        dtype: the dtype of floating-point tensors; None for that of their types.
        device: where to compute; None for the CPU.

    Attributes:
        metrics: name -> the values so far, [1, ...] each.
    """

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None = None) -> None:
        super().__init__()
        self._dtype = dtype
        self._device = device
        self.metrics: dict[str, list[Tensor]] = {}

    def from_example(self, kind: TensorType, value: np.ndarray) -> Tensor:
        return self.cast(torch.as_tensor(np.asarray(value)).to(self._device), kind).unsqueeze(0)

    def visit(self, primitive: Primitive, x: Any) -> Any:
        return primitive.evaluate(self, x)

    def cast(self, tensor: Tensor, kind: TensorType) -> Tensor:
        """A tensor in the dtype that its type has in this model."""
        return tensor.to(in_dtype(kind, self._dtype))

    def zeros(self, kind: TensorType, size: int = 1) -> Tensor:
        """[size, ...] zeros of a type."""
        dtype = in_dtype(kind, self._dtype)
        return torch.zeros((size, *kind.shape), dtype=dtype, device=self._device)


class Depth(Context):
    """Counts calls; a tensor in flight is the number of calls that it waits for.

    Attributes:
        deepest: the largest number that was noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deepest = 0

    def note(self, depth: int) -> None:
        """Notes the depth of a result."""
        self.deepest = max(self.deepest, depth)

    def from_example(self, kind: TensorType, value: np.ndarray) -> int:
        return 0

    def visit(self, primitive: Primitive, x: Any) -> Any:
        return primitive.depth(self, x)


def evaluate(block: Block, inp: Any, tolist: bool) -> Any:
    """`Block.eval`."""
    blocks = check_blocks(block)
    modules = [module for b in blocks for module in b.own_modules()]
    device = next((t.device for m in modules for t in [*m.parameters(), *m.buffers()]), None)
    context = Evaluation(float_dtype_of(modules), device)
    result = _without_batch(block.output_type, run(block, context, inp), tolist)
    kinds = {name: kind for b in blocks for name, kind in b.metrics().items()}
    if not kinds:
        return result
    values = {}
    for name, kind in sorted(kinds.items()):
        value = torch.cat(context.metrics.get(name) or [context.zeros(kind, 0)])
        values[name] = value.tolist() if tolist else value
    return result, values


def max_depth(block: Block, inp: Any) -> int:
    """`Block.max_depth`."""
    check_blocks(block)
    context = Depth()
    value = run(block, context, inp)
    if block.output_type is not None:
        block.output_type.for_each_terminal(
            lambda kind, depth: context.note(depth) if isinstance(kind, TensorType) else None, value
        )
    return context.deepest


def float_dtype_of(modules: Iterable[nn.Module]) -> torch.dtype | None:
    """The dtype of the first parameter or, if there is none, buffer; None if there is neither.

    So `model.double()` makes a model of float32 types compute in float64.
    """
    modules = list(modules)
    for tensors in (nn.Module.parameters, nn.Module.buffers):
        for module in modules:
            for tensor in tensors(module):
                if tensor.is_floating_point():
                    return tensor.dtype
    return None


def in_dtype(kind: TensorType, float_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype that tensors of a type have in a model that computes in `float_dtype`."""
    if float_dtype is None or not kind.is_floating_point:
        return kind.torch_dtype
    return float_dtype


def _without_batch(kind: ResultType | None, value: Any, tolist: bool) -> Any:
    """A result with tensors of their own shape, or as lists."""
    if kind is None or isinstance(kind, PyObjectType):
        return value
    flat = []
    for item in kind.flatten(value):
        tensor = item[0] if isinstance(item, Tensor) else item
        flat.append(tensor.tolist() if tolist and isinstance(tensor, Tensor) else tensor)
    return kind.unflatten(iter(flat), value)
