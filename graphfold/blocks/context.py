"""Context: what a block talks to when one example runs through it, and the loop that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfold.blocks.block import Block, Steps
    from graphfold.blocks.constants import FromTensor
    from graphfold.blocks.function import Function
    from graphfold.blocks.metric import Metric
    from graphfold.blocks.reductions import Reduction
    from graphfold.blocks.types import TensorType


class Context(ABC):
    """What happens to tensors: they are recorded (lowering), computed (eval) or counted (depth).

    What a tensor is while it is in flight is the context's own business; blocks only pass it on.
    """

    def __init__(self) -> None:
        # (id of a declared block, id of what it is given) -> how often that runs inside of itself
        self.inside: dict[tuple[int, int], int] = {}

    @abstractmethod
    def from_example(self, kind: TensorType, value: Any) -> Any:
        """A tensor that the example holds, given as a numpy array of the type."""

    @abstractmethod
    def constant(self, block: FromTensor) -> Any:
        """A tensor that is the same for every example."""

    @abstractmethod
    def call(self, function: Function, x: Any) -> Any:
        """An instance of the function's output type from one of its input type."""

    @abstractmethod
    def reduce(self, reduction: Reduction, items: Sequence[Any]) -> Any:
        """A tensor from any number of tensors of its type."""

    @abstractmethod
    def metric(self, metric: Metric, value: Any, label: Any) -> None:
        """Notes a tensor under a name."""


def run(block: Block, context: Context, x: Any) -> Any:
    """What a block makes of one value.

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
