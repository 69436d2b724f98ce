"""The matrix products of a plan alone, by torch: what is left of its time without the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphfold.batching import Batch


class Product(NamedTuple):
    """A weight with the rows that go through it, one call after another."""

    weight: Tensor  # [output_size, input_size]
    calls: Sequence[int]  # rows of each call
    needs_input_grad: bool = True


class ProductFloor:
    """Takes products of given sizes in memory that is there already.

    Nothing is gathered, added or activated. The gradient of a weight is one product over the rows
    of all calls: their number is the least that still respects the order of the levels. It is a
    floor for one plan and for torch's products: a plan of fewer rows has fewer of them, and kernels
    of graphfold's own may take theirs in less time.

    Args:
        products: what to take.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self._operands = [_Operands(product) for product in products]

    @property
    def rows(self) -> list[int]:
        """How many rows go through each weight."""
        return [sum(operands.calls) for operands in self._operands]

    def run(self, phase: str) -> None:
        """The products of a phase, "train" or "inference"."""
        if phase == "train":
            self.train()
        else:
            self.inference()

    def inference(self) -> None:
        """The products of a forward pass."""
        with torch.no_grad():
            for operands in self._operands:
                operands.forward()

    def train(self) -> None:
        """Those of a forward and a backward pass."""
        with torch.no_grad():
            for operands in self._operands:
                operands.forward()
            for operands in self._operands:
                operands.backward()


class _Operands:
    def __init__(self, product: Product) -> None:
        self.weight = product.weight.detach()
        output_size, input_size = self.weight.shape
        num_rows = sum(product.calls)
        self.calls = list(product.calls)
        self.needs_input_grad = product.needs_input_grad
        self.x = torch.randn(num_rows, input_size)
        self.y = torch.empty(num_rows, output_size)
        self.grad_y = torch.randn(num_rows, output_size)
        self.grad_x = torch.empty(num_rows, input_size)
        self.grad_weight = torch.empty(output_size, input_size)

    def forward(self) -> None:
        start = 0
        for count in self.calls:
            rows = slice(start, start + count)
            torch.mm(self.x[rows], self.weight.T, out=self.y[rows])
            start += count

    def backward(self) -> None:
        start = 0
        for count in self.calls if self.needs_input_grad else ():
            rows = slice(start, start + count)
            torch.mm(self.grad_y[rows], self.weight, out=self.grad_x[rows])
            start += count
        torch.mm(self.grad_y.T, self.x, out=self.grad_weight)


def group_sizes(batch: Batch, op_type: int, pass_index: int = 0) -> list[int]:
    """How many nodes of a type run together, for each of its groups in a pass."""
    groups = batch.schedule.passes[pass_index].groups
    return [group.size for group in groups if group.op_type == op_type]
