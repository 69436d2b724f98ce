"""Contexts: the ways to run blocks on one example.

`Evaluation` computes at once, which is slow and defines the right result; `Depth` counts calls; a
`Recorder` records the calls, so that a batch can compute them together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphfold.blocks.inference.types import TensorType, in_dtype

#: A block with children asks for their results, (child, input) by (child, input).
Steps: TypeAlias = Generator[tuple[Any, Any], Any, Any]


class Context(ABC):
    """Base of the runs: tensors are computed (eval), recorded (lowering) or counted (depth).

    Each context has its own stand-in for a tensor; blocks only pass it on. Tuples are tuples,
    sequences are lists, and endless sequences `itertools.repeat`.

    Attributes:
        active: (id of a declared block, id of its input) -> how often that runs inside itself.
    """

    def __init__(self) -> None:
        self.active: dict[tuple[int, int], int] = {}

    @abstractmethod
    def from_example(self, kind: TensorType, value: np.ndarray) -> Any:
        """The stand-in for a tensor of the example, from an array of that type."""

    @abstractmethod
    def visit(self, primitive: Any, x: Any) -> Any:
        """The result of a primitive block on its input."""


class Recorder(Context):
    """Base of the run that records the calls that examples need; lowering has the subclass.

    The stand-in for a tensor is an array of the example, a constant, or an output of a node.
    """

    @abstractmethod
    def constant(self, block: Any) -> Any:
        """The stand-in for the tensor of a `FromTensor`."""

    @abstractmethod
    def node(self, block: Any, tensors: Iterable[Any]) -> Sequence[Any]:
        """The outputs of a new node.

        Args:
            block: the primitive that the node computes.
            tensors: its inputs, one for each of `block.input_tensors`.
        """

    @abstractmethod
    def reduction(self, block: Any, tensors: Sequence[Any], kind: TensorType) -> Any:
        """The first output of a new node that takes any number of tensors.

        Args:
            block: the primitive that the node computes.
            tensors: its inputs, all of one type.
            kind: that type.
        """

    @abstractmethod
    def metric(self, metric: Any, value: Any, label: Any) -> None:
        """Notes a tensor as a value of a metric."""


def run(block: Any, context: Context, x: Any) -> Any:
    """The result of a block for one value.

    The blocks that wait for a child are on an explicit stack, so the depth of the example is not
    limited by Python's.
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
    """Computes at once; the stand-in for a tensor is a batch of one.

    Args:
        dtype: the dtype of floating-point tensors; None for the dtype of their types.
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
        tensor = torch.as_tensor(np.asarray(value), device=self._device or "cpu")
        return self.cast(tensor, kind).unsqueeze(0)

    def visit(self, primitive: Any, x: Any) -> Any:
        return primitive.evaluate(self, x)

    def cast(self, tensor: Tensor, kind: TensorType) -> Tensor:
        """A tensor in the dtype that its type has in this model."""
        return tensor.to(in_dtype(kind, self._dtype))

    def zeros(self, kind: TensorType, size: int = 1) -> Tensor:
        """[size, ...] zeros of a type."""
        dtype = in_dtype(kind, self._dtype)
        return torch.zeros((size, *kind.shape), dtype=dtype, device=self._device)


class Depth(Context):
    """Counts calls; the stand-in for a tensor is the number of calls that it waits for.

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

    def visit(self, primitive: Any, x: Any) -> Any:
        return primitive.depth(self, x)
