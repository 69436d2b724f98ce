"""Lazy gradients: one product over the rows of many groups, not one per group.

What `LazyParameter` has noted in forward, and backward knows the gradients of, comes together here;
see there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphfold.batching.engine.lazy_parameters import Kind
from graphfold.batching.kernels.products import Apart, Rows, sum_products
from graphfold.batching.kernels.row_blocks import rows_mm

#: Products are taken once this many rows have come together: enough for full speed, so that
#: waiting for more would only hold memory.
ROWS_PER_PRODUCT = 1024
#: The same where rows lie apart: that kernel reaches full speed with fewer.
ROWS_PER_SUM = 256


class LazyGradients:
    """Collects what the deferred gradients need, and computes them.

    Args:
        parameters: what the numbers of uses stand for.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._products: dict[tuple[Kind, int | None, int | None], _Product] = {}
        self._totals: dict[int, Tensor] = {}

    def add(
        self, kind: Kind, weight: int | None, bias: int | None, input: Rows, grad: Tensor
    ) -> None:
        """Notes a use's input and the gradient of its output."""
        rows = grad if grad.dim() == 2 else grad.reshape(-1, grad.shape[-1])
        if isinstance(input, Apart):
            self._note(kind, weight, bias, input, rows)
            return
        if kind is Kind.EMBEDDING and weight is not None:
            total = self._total(weight)
            total.index_add_(0, input.reshape(-1), rows.to(total.dtype))
            return
        x = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
        self._note(kind, weight, bias, x, rows)

    def _note(
        self, kind: Kind, weight: int | None, bias: int | None, x: Rows, rows: Tensor
    ) -> None:
        num_rows = rows.shape[0]
        enough = ROWS_PER_SUM if isinstance(x, Apart) else ROWS_PER_PRODUCT
        if num_rows >= enough:
            self._multiply(kind, weight, bias, x, rows)
            return
        product = self._products.get((kind, weight, bias))
        if product is None:
            product = self._products[kind, weight, bias] = _Product()
        product.inputs.append(x)
        product.grads.append(rows)
        product.num_rows += num_rows
        if product.num_rows >= enough:
            self._multiply(kind, weight, bias, *product.take())

    def take(self, totals: dict[int, Tensor]) -> None:
        """Adds all deferred gradients to `totals` [by the parameters' numbers]."""
        for key, product in self._products.items():
            if product.num_rows:
                self._multiply(*key, *product.take())
        for number, total in self._totals.items():
            totals[number] = totals[number].add_(total) if number in totals else total

    def _multiply(
        self, kind: Kind, weight: int | None, bias: int | None, x: Rows, grad: Tensor
    ) -> None:
        if weight is not None and isinstance(x, Apart):
            self._multiply_apart(kind, weight, bias, x, grad)
            return
        if weight is not None and isinstance(x, Tensor):
            x = x.to(grad.dtype)  # they differ under autocast
            self._add(weight, rows_mm(grad, x) if kind is Kind.LINEAR else rows_mm(x, grad))
        if bias is not None:
            self._add(bias, grad.sum(0))

    def _multiply_apart(
        self, kind: Kind, weight: int, bias: int | None, x: Apart, grad: Tensor
    ) -> None:
        """The same of rows that lie apart, which are not gathered for it."""
        total = self._totals.get(weight) if kind is Kind.LINEAR else None
        sums = None if bias is None else self._total(bias)
        found = sum_products(grad, x, total, sums)
        if total is None:
            self._add(weight, found if kind is Kind.LINEAR else found.T)

    def _add(self, number: int, change: Tensor) -> None:
        if number in self._totals:
            self._totals[number].add_(change)
        else:
            self._totals[number] = change.to(self._parameters[number].dtype)

    def _total(self, number: int) -> Tensor:
        if number not in self._totals:
            self._totals[number] = torch.zeros_like(self._parameters[number])
        return self._totals[number]


class _Product:
    """The factors of a product whose rows are still coming together."""

    def __init__(self) -> None:
        self.inputs: list[Rows] = []
        self.grads: list[Tensor] = []
        self.num_rows = 0

    def take(self) -> tuple[Rows, Tensor]:
        """All inputs [num_rows, in] and all gradients [num_rows, out]; forgets them."""
        inputs, grads = self.inputs, self.grads
        self.inputs, self.grads, self.num_rows = [], [], 0
        return _joined(inputs), grads[0] if len(grads) == 1 else torch.cat(grads)


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    apart = [part for part in parts if isinstance(part, Apart)]
    if len({(id(part.source), part.num_parts) for part in apart}) == 1 and len(apart) == len(parts):
        return apart[0]._replace(places=torch.cat([part.places for part in apart]))
    return torch.cat([part.gather() if isinstance(part, Apart) else part for part in parts])
