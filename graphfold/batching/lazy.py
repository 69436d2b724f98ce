"""Lazy parameter gradients: one product over the rows of many groups, not one per group.

Cavs (Xu et al., 2018, https://arxiv.org/abs/1712.04048, section 3.4) defers the gradients of
parameters to the end of the backward pass. A cell does not notice: inside the engine its weights
are `LazyParameter`s, and `torch.nn.functional.linear` and `embedding` record what the gradient
needs instead of computing it. Any other use of a weight is differentiated per group, as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

#: Products are taken once this many rows have come together: enough for full speed, so that
#: waiting for more would only hold memory.
ROWS_PER_PRODUCT = 1024


class LazyParameter(Tensor):
    """Stands for a parameter while the engine runs a cell.

    Attributes:
        leaf: the plain tensor, whose gradient is collected per group.
        recorder: where deferred uses are recorded.
    """

    leaf: Tensor
    recorder: LazyGradients

    @staticmethod
    def wrap(leaf: Tensor, recorder: LazyGradients) -> LazyParameter:
        """A lazy alias of `leaf`."""
        alias: LazyParameter = Tensor._make_subclass(LazyParameter, leaf.detach())
        alias.leaf = leaf
        alias.recorder = recorder
        return alias

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.linear:
                return _linear(*args, **kwargs)
            if func is F.embedding:
                return _embedding(*args, **kwargs)
            return func(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})


class LazyGradients:
    """Collects what the deferred gradients need, and computes them."""

    def __init__(self) -> None:
        self._products: dict[tuple[int, int | None], _Product] = {}
        self._totals: dict[int, Tensor] = {}

    def add_product(self, weight: Tensor, bias: Tensor | None, x: Tensor, grad: Tensor) -> None:
        """Records one linear product: x [rows, in] gave an output with gradient [rows, out]."""
        key = (id(weight), None if bias is None else id(bias))
        product = self._products.setdefault(key, _Product(weight, bias))
        product.rows.append((x, grad))
        product.num_rows += len(x)
        if product.num_rows >= ROWS_PER_PRODUCT:
            self._flush(product)

    def add_rows(self, weight: Tensor, index: Tensor, grad: Tensor) -> None:
        """Records an embedding: rows `index` of the weight were read."""
        rows = grad.reshape(-1, weight.shape[1]).to(weight.dtype)
        self._total(weight).index_add_(0, index.reshape(-1), rows)

    def take(self, leaves: list[Tensor], totals: list[Tensor | None]) -> None:
        """Adds all deferred gradients to `totals` [one per leaf], and forgets them."""
        for product in self._products.values():
            self._flush(product)
        for position, leaf in enumerate(leaves):
            lazy = self._totals.pop(id(leaf), None)
            if lazy is not None:
                total = totals[position]
                totals[position] = lazy if total is None else total.add_(lazy)
        self._products.clear()

    def _flush(self, product: _Product) -> None:
        if not product.rows:
            return
        x, grad = product.joined()
        if product.weight.requires_grad:
            # dtypes differ under autocast; the product is taken as the forward one was.
            change = grad.T @ x.to(grad.dtype)
            self._total(product.weight).add_(change)
        if product.bias is not None and product.bias.requires_grad:
            self._total(product.bias).add_(grad.sum(0))

    def _total(self, leaf: Tensor) -> Tensor:
        if id(leaf) not in self._totals:
            self._totals[id(leaf)] = torch.zeros_like(leaf)
        return self._totals[id(leaf)]


class _Product:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias
        self.rows: list[tuple[Tensor, Tensor]] = []
        self.num_rows = 0

    def joined(self) -> tuple[Tensor, Tensor]:
        """All recorded rows as two matrices; forgets them."""
        xs, grads = zip(*self.rows, strict=True)
        self.rows, self.num_rows = [], 0
        if len(xs) == 1:
            return xs[0], grads[0]
        return torch.cat(xs), torch.cat(grads)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    recorder = (weight if isinstance(weight, LazyParameter) else bias).recorder  # type: ignore[union-attr]
    output: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        _plain(x), _plain(weight), _plain(bias), recorder
    )
    return output


def _embedding(index: Tensor, weight: LazyParameter, *args: Any, **kwargs: Any) -> Tensor:
    if any(value not in (None, False, 2.0) for value in (*args, *kwargs.values())):
        # A padding row, a norm limit or sparse gradients are rare in a cell: left to autograd.
        return F.embedding(index, weight.leaf, *args, **kwargs)
    output: Tensor = _Embedding.apply(  # type: ignore[no-untyped-call]
        index, weight.leaf, weight.recorder
    )
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, recorder: LazyGradients
    ) -> Tensor:
        ctx.recorder, ctx.weight, ctx.bias = recorder, weight, bias
        ctx.save_for_backward(x)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        weight: Tensor = ctx.weight
        rows = grad.reshape(-1, grad.shape[-1])
        ctx.recorder.add_product(weight, ctx.bias, x.reshape(-1, x.shape[-1]), rows)
        grad_x = (grad @ weight.to(grad.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None
        return grad_x, None, None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, index: Tensor, weight: Tensor, recorder: LazyGradients) -> Tensor:
        ctx.recorder, ctx.weight, ctx.index = recorder, weight, index
        return F.embedding(index, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.recorder.add_rows(ctx.weight, ctx.index, grad)
        return None, None, None


def _plain(value: Any) -> Any:
    """The value with plain leaves in the place of lazy parameters."""
    if isinstance(value, LazyParameter):
        return value.leaf
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    return value
