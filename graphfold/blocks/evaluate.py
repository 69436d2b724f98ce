"""One example at a time: `Block.eval`, which is slow and says what is right, and `max_depth`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphfold.blocks.block import Block
from graphfold.blocks.constants import FromTensor
from graphfold.blocks.context import Context, run
from graphfold.blocks.function import Function
from graphfold.blocks.metric import Metric
from graphfold.blocks.precision import float_dtype_of, in_dtype
from graphfold.blocks.reductions import Reduction
from graphfold.blocks.types import PyObjectType, ResultType, TensorType
from graphfold.blocks.walk import check_blocks, modules_of


def evaluate(block: Block, inp: Any, tolist: bool) -> Any:
    """`Block.eval`."""
    blocks = check_blocks(block)
    modules = modules_of(blocks)
    device = next((t.device for m in modules for t in [*m.parameters(), *m.buffers()]), None)
    context = Evaluation(float_dtype_of(modules), device)
    result = _without_batch(block.output_type, run(block, context, inp), tolist)
    names = {b.name: b.tensor for b in blocks if isinstance(b, Metric)}
    if not names:
        return result
    values = {name: context.stacked(name, kind) for name, kind in names.items()}
    return result, {n: v.tolist() if tolist else v for n, v in sorted(values.items())}


def max_depth(block: Block, inp: Any) -> int:
    """`Block.max_depth`."""
    check_blocks(block)
    context = Depth()
    context.note(block.output_type, run(block, context, inp))
    return context.deepest


class Evaluation(Context):
    """Computes at once; a tensor in flight is a batch of one.

    Args:
        dtype: the dtype of floating-point tensors; None for that of their types.
        device: where to compute; None for the CPU.
    """

    def __init__(self, dtype: torch.dtype | None, device: torch.device | None = None) -> None:
        super().__init__()
        self._dtype = dtype
        self._device = device
        self._metrics: dict[str, list[Tensor]] = {}

    def from_example(self, kind: TensorType, value: Any) -> Tensor:
        dtype = in_dtype(kind, self._dtype)
        tensor = torch.as_tensor(np.asarray(value)).to(self._device, dtype)
        return tensor.unsqueeze(0)

    def constant(self, block: FromTensor) -> Tensor:
        tensor = block.tensor
        if self._dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor.unsqueeze(0)

    def call(self, function: Function, x: Any) -> Any:
        flat = function.compute(list(function.flatten(x)))
        kinds = function.output_tensors
        return function.unflatten(
            [t.to(in_dtype(kind, self._dtype)) for t, kind in zip(flat, kinds, strict=True)]
        )

    def reduce(self, reduction: Reduction, items: Sequence[Tensor]) -> Tensor:
        kind = reduction.tensor
        if not items:
            return self._zeros(kind, 1)
        rows = torch.stack(list(items))
        if reduction.how == "sum":
            return rows.sum(0).to(rows.dtype)
        if reduction.how == "mean":
            return rows.mean(0)
        return rows.amin(0) if reduction.how == "min" else rows.amax(0)

    def metric(self, metric: Metric, value: Tensor, label: Any) -> None:
        self._metrics.setdefault(metric.name, []).append(value)

    def stacked(self, name: str, kind: TensorType) -> Tensor:
        """[num_values, ...] what a metric has collected."""
        rows = self._metrics.get(name)
        if rows:
            return torch.cat(rows)
        return self._zeros(kind, 0)

    def _zeros(self, kind: TensorType, count: int) -> Tensor:
        dtype = in_dtype(kind, self._dtype)
        return torch.zeros((count, *kind.shape), dtype=dtype, device=self._device)


class Depth(Context):
    """Counts calls; a tensor in flight is the number of calls that it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.deepest = 0

    def note(self, kind: ResultType | None, value: Any) -> None:
        """Notes the depths in an instance of a type."""
        if kind is not None:
            found = [v for v in _tensors(kind, value) if isinstance(v, int)]
            self.deepest = max([self.deepest, *found])

    def from_example(self, kind: TensorType, value: Any) -> int:
        return 0

    def constant(self, block: FromTensor) -> int:
        return 0

    def call(self, function: Function, x: Any) -> Any:
        depth = 1 + max(function.flatten(x))
        return function.unflatten([depth] * len(function.output_tensors))

    def reduce(self, reduction: Reduction, items: Sequence[int]) -> int:
        levels = ceil(log2(len(items))) if items else 0
        return max(items, default=0) + levels + (reduction.how == "mean")

    def metric(self, metric: Metric, value: int, label: Any) -> None:
        self.deepest = max(self.deepest, 1 + value)


def _tensors(kind: ResultType, value: Any) -> list[Any]:
    found: list[Any] = []
    kind.for_each_terminal(
        lambda t, v: found.append(v) if isinstance(t, TensorType) else None, value
    )
    return found


def _without_batch(kind: ResultType | None, value: Any, tolist: bool) -> Any:
    """A result with tensors of their own shape, or as lists."""
    if kind is None or isinstance(kind, PyObjectType):
        return value
    flat = []
    for item in kind.flatten(value):
        tensor = item[0] if isinstance(item, Tensor) else item
        flat.append(tensor.tolist() if tolist and isinstance(tensor, Tensor) else tensor)
    return kind.unflatten(iter(flat), value)
