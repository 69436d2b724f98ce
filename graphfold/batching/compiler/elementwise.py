"""The elementwise operations of torch in native ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from graphfold.batching.compiler.values import (
    WHOLE,
    Operand,
    Untraceable,
    ValueBuilder,
    View,
)

aten = torch.ops.aten

#: Operations of torch that are one native operation of the same name and arguments.
SAME = (
    *("neg", "abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "reciprocal", "sigmoid"),
    *("tanh", "relu", "erf", "sin", "cos", "sign", "mul", "maximum", "minimum", "where"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"),
)


@functools.cache
def clamp_is_flat_at_limits() -> bool:
    """True if a number that equals the limit of `clamp` has no slope, as from torch 2.14 on."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True)
        (slope,) = torch.autograd.grad(x.clamp(min=0).sum(), [x])
    return not slope.item()


class Composed:
    """Operations of torch that are several native ones; a method for each, named as in torch."""

    def __init__(self, to: ValueBuilder) -> None:
        self._do = to.apply

    def add(self, x: Operand, y: Operand, alpha: float = 1) -> View:
        return self._do("add", x, self._times(y, alpha))

    def sub(self, x: Operand, y: Operand, alpha: float = 1) -> View:
        return self._do("sub", x, self._times(y, alpha))

    def rsub(self, x: Operand, y: Operand, alpha: float = 1) -> View:
        return self._do("sub", y, self._times(x, alpha))

    def div(self, x: Operand, y: Operand, rounding_mode: str | None = None) -> View:
        if rounding_mode is not None:
            raise Untraceable("it divides and rounds")
        return self._do("mul", x, 1 / y) if isinstance(y, float) and y else self._do("div", x, y)

    def square(self, x: View) -> View:
        return self._do("mul", x, x)

    def pow(self, x: Operand, exponent: Operand) -> View:
        if exponent == 0 and isinstance(x, View):
            return self._do("where", self._do("eq", x, x), 1.0, 1.0)
        if exponent == 2 and isinstance(x, View):
            return self.square(x)
        if exponent == 3 and isinstance(x, View):
            return self._do("mul", self.square(x), x)
        if exponent in (0.5, -0.5, -1):
            return self._do({0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}[exponent], x)
        return self._do("pow", x, exponent)

    def addcmul(self, x: View, y: View, z: View, value: float = 1) -> View:
        return self._do("fma", self._times(y, value), z, x)

    def addcdiv(self, x: View, y: View, z: View, value: float = 1) -> View:
        return self.add(x, self._do("div", y, z), value)

    def lerp(self, x: View, end: View, weight: Operand) -> View:
        return self._do("fma", self._do("sub", end, x), weight, x)

    def clamp(self, x: View, min: Operand | None = None, max: Operand | None = None) -> View:
        x = x if min is None else self.clamp_min(x, min)
        return x if max is None else self.clamp_max(x, max)

    def clamp_min(self, x: View, min: Operand) -> View:
        return self._clamp(x, min, "lt", "le", "maximum")

    def clamp_max(self, x: View, max: Operand) -> View:
        return self._clamp(x, max, "gt", "ge", "minimum")

    def _clamp(self, x: View, limit: Operand, beyond: str, reached: str, extreme: str) -> View:
        if not clamp_is_flat_at_limits():
            return self._limit(x, limit, beyond)
        if isinstance(limit, View):  # equal numbers share the derivative
            return self._do(extreme, x, limit)
        return self._limit(x, limit, reached)

    def _limit(self, x: View, limit: Operand, comparison: str) -> View:
        """The limit, without a slope of x, where the comparison holds or the limit is none."""
        is_over = self._do(comparison, x, limit)
        if isinstance(limit, View) and limit.space != WHOLE:
            is_over = self._do("logical_or", is_over, self._do("ne", limit, limit))
        return self._do("where", is_over, limit, x)

    def hardtanh(self, x: View, min_val: float = -1, max_val: float = 1) -> View:
        # At its ends it has no slope, whatever `clamp` has.
        return self._limit(self._limit(x, float(min_val), "le"), float(max_val), "ge")

    def leaky_relu(self, x: View, negative_slope: float = 0.01) -> View:
        return self._do("where", self._do("gt", x, 0.0), x, self._times(x, negative_slope))

    def elu(self, x: View, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> View:
        below = self._do("where", self._do("gt", x, 0.0), 0.0, x)  # what is not taken is finite
        low = self._times(self._do("expm1", self._times(below, input_scale)), alpha * scale)
        return self._do("where", self._do("gt", x, 0.0), self._times(x, scale), low)

    def celu(self, x: View, alpha: float = 1) -> View:
        return self.elu(x, alpha, 1, 1 / alpha)

    def silu(self, x: View) -> View:
        return self._do("mul", x, self._do("sigmoid", x))

    def gelu(self, x: View, approximate: str = "none") -> View:
        if approximate == "none":
            inner = self._do("erf", self._times(x, math.sqrt(0.5)))
        else:
            cubed = self._do("fma", self._times(self.pow(x, 3), 0.044715), 1.0, x)
            inner = self._do("tanh", self._times(cubed, math.sqrt(2 / math.pi)))
        return self._do("mul", self._times(x, 0.5), self._do("add", inner, 1.0))

    def softplus(self, x: View, beta: float = 1, threshold: float = 20) -> View:
        scaled = self._times(x, beta)
        # Without overflow: max(x, 0) + log(1 + exp(-|x|)), with the slope 1/2 at 0.
        below = self._do("where", self._do("gt", scaled, 0.0), self._do("neg", scaled), scaled)
        low = self._do("log1p", self._do("exp", below))
        soft = self._times(self._do("add", self._do("relu", scaled), low), 1 / beta)
        return self._do("where", self._do("gt", scaled, float(threshold)), x, soft)

    def log_sigmoid(self, x: View) -> View:
        return self._do("neg", self.softplus(self._do("neg", x)))

    def masked_fill(self, x: View, mask: View, value: Operand) -> View:
        return self._do("where", mask, value, x)

    def bitwise_not(self, x: View) -> View:
        return self._do("logical_not", x)

    def bitwise_and(self, x: Operand, y: Operand) -> View:
        return self._do("logical_and", x, y)

    def bitwise_or(self, x: Operand, y: Operand) -> View:
        return self._do("logical_or", x, y)

    def _times(self, x: Operand, factor: float) -> Operand:
        return x if factor == 1 else self._do("mul", x, float(factor))


def elementwise(to: ValueBuilder) -> dict[Any, Callable[..., View]]:
    """Operation of torch -> what writes it down."""

    def same(name: str) -> Callable[..., View]:
        return lambda *operands: to.apply(name, *operands)

    composed = Composed(to)
    named = {
        getattr(aten, name): getattr(composed, name)
        for name in vars(Composed)
        if not name.startswith("_")
    }
    return {**{getattr(aten, name): same(name) for name in SAME}, **named}
