"""`product_floor`: the matrix products of a plan alone, by torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching import Batch


class Product(NamedTuple):
    """A weight with the rows that are multiplied by it."""

    weight: Tensor  # [output_size, input_size]
    calls: Sequence[int]  # rows of each call
    needs_input_grad: bool = True


class ProductFloor:
    """Computes products of given sizes in preallocated memory.

    Nothing is gathered, added or activated. The gradient of a weight is one product over the rows
    of all calls; their number is the least that respects the order of the levels. It is a floor for
    one plan and for torch's products: a plan of fewer rows has fewer of them, and graphfold's own
    kernels may need less time for theirs.

    Args:
        products: the weights, and the rows of each call.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self._operands = [_Operands(product) for product in products]

    @property
    def rows(self) -> list[int]:
        """The number of rows that are multiplied by each weight."""
        return [sum(operands.calls) for operands in self._operands]

    @torch.no_grad()
    def run(self, phase: str) -> None:
        """The products of forward, and in the phase "train" those of backward."""
        for operands in self._operands:
            operands.forward()
        for operands in self._operands if phase == "train" else ():
            operands.backward()


class _Operands:
    def __init__(self, product: Product) -> None:
        self.weight = product.weight.detach()
        output_size, input_size = self.weight.shape
        num_rows = sum(product.calls)
        self.calls = list(product.calls)
        self.needs_input_grad = product.needs_input_grad
        self.x = self.weight.new_empty(num_rows, input_size).normal_()
        self.y = self.weight.new_empty(num_rows, output_size)
        self.grad_y = torch.randn_like(self.y)
        self.grad_x = torch.empty_like(self.x)
        self.grad_weight = torch.empty_like(self.weight)

    def forward(self) -> None:
        for rows in self._slices():
            torch.mm(self.x[rows], self.weight.T, out=self.y[rows])

    def backward(self) -> None:
        for rows in self._slices() if self.needs_input_grad else ():
            torch.mm(self.grad_y[rows], self.weight, out=self.grad_x[rows])
        torch.mm(self.grad_y.T, self.x, out=self.grad_weight)

    def _slices(self) -> Iterator[slice]:
        start = 0
        for count in self.calls:
            yield slice(start, start + count)
            start += count


def group_sizes(batch: Batch, op_type: int, pass_index: int = 0) -> list[int]:
    """The number of nodes in each group of a type in a pass."""
    groups = batch.schedule.passes[pass_index].groups
    return [group.size for group in groups if group.op_type == op_type]
