"""The elementwise operations of torch as operations of values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from graphfold.batching.compiler import operations as op
from graphfold.batching.compiler.operations import AnyTerm, Term, operand, where
from graphfold.batching.compiler.values import WHOLE, Operation, Untraceable, ValueBuilder, View

aten = torch.ops.aten

#: Operations that torch has by the same name, with the same operands.
SAME: tuple[Operation, ...] = (
    *(op.NEG, op.ABS, op.SIGN, op.EXP, op.EXPM1, op.LOG, op.LOG1P, op.SQRT, op.RSQRT),
    *(op.RECIPROCAL, op.SIGMOID, op.TANH, op.RELU, op.ERF, op.SIN, op.COS, op.MUL, op.WHERE),
    *(op.MAXIMUM, op.MINIMUM, op.EQ, op.NE, op.LT, op.LE, op.GT, op.GE),
    *(op.LOGICAL_AND, op.LOGICAL_OR, op.LOGICAL_NOT),
)


@functools.cache
def clamp_is_flat_at_limits() -> bool:
    """True if a number that equals the limit of `clamp` has no slope, as from torch 2.14 on."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, requires_grad=True, device="cpu")
        (slope,) = torch.autograd.grad(x.clamp(min=0).sum(), [x])
    return not slope.item()


class Composed:
    """Operations of torch that are several of values; a method for each, named as in torch.

    Args:
        to: where they are written down.
    """

    def __init__(self, to: ValueBuilder) -> None:
        self._to = to

    def _do(self, operation: Operation, *operands: AnyTerm) -> Term:
        return Term(self._to, self._to.apply(operation, *map(operand, operands)))

    def add(self, x: AnyTerm, y: AnyTerm, alpha: float = 1) -> Term:
        return self._do(op.ADD, x, self._times(y, alpha))

    def sub(self, x: AnyTerm, y: AnyTerm, alpha: float = 1) -> Term:
        return self._do(op.SUB, x, self._times(y, alpha))

    def rsub(self, x: AnyTerm, y: AnyTerm, alpha: float = 1) -> Term:
        return self._do(op.SUB, y, self._times(x, alpha))

    def div(self, x: AnyTerm, y: AnyTerm, rounding_mode: str | None = None) -> Term:
        if rounding_mode is not None:
            raise Untraceable("it divides and rounds")
        return self._do(op.MUL, x, 1 / y) if isinstance(y, float) and y else self._do(op.DIV, x, y)

    def square(self, x: Term) -> Term:
        return x * x

    def pow(self, x: AnyTerm, exponent: AnyTerm) -> Term:
        if isinstance(x, Term) and exponent in (2, 3):
            return x * x if exponent == 2 else x * x * x
        if isinstance(x, Term) and exponent == 0:
            return where(x.do(op.EQ, x), 1.0, 1.0)
        if exponent in (0.5, -0.5, -1):
            return self._do({0.5: op.SQRT, -0.5: op.RSQRT, -1: op.RECIPROCAL}[exponent], x)
        return self._do(op.POW, x, exponent)

    def addcmul(self, x: Term, y: Term, z: Term, value: float = 1) -> Term:
        return self._do(op.FMA, self._times(y, value), z, x)

    def addcdiv(self, x: Term, y: Term, z: Term, value: float = 1) -> Term:
        return self.add(x, y / z, value)

    def lerp(self, x: Term, end: Term, weight: AnyTerm) -> Term:
        return (end - x).do(op.FMA, weight, x)

    def clamp(self, x: Term, min: AnyTerm | None = None, max: AnyTerm | None = None) -> Term:
        x = x if min is None else self.clamp_min(x, min)
        return x if max is None else self.clamp_max(x, max)

    def clamp_min(self, x: Term, min: AnyTerm) -> Term:
        return self._clamp(x, min, op.LT, op.LE, op.MAXIMUM)

    def clamp_max(self, x: Term, max: AnyTerm) -> Term:
        return self._clamp(x, max, op.GT, op.GE, op.MINIMUM)

    def _clamp(
        self, x: Term, limit: AnyTerm, beyond: Operation, reached: Operation, extreme: Operation
    ) -> Term:
        is_flat = clamp_is_flat_at_limits()
        if is_flat and isinstance(limit, Term):  # equal numbers share the derivative
            return x.do(extreme, limit)
        return self._limit(x, limit, reached if is_flat else beyond)

    def _limit(self, x: Term, limit: AnyTerm, comparison: Operation) -> Term:
        """The limit, without a slope of x, where the comparison holds or the limit is none."""
        is_over = x.do(comparison, limit)
        if isinstance(limit, Term) and limit.view.space != WHOLE:
            is_over = is_over.do(op.LOGICAL_OR, limit.do(op.NE, limit))
        return where(is_over, limit, x)

    def hardtanh(self, x: Term, min_val: float = -1, max_val: float = 1) -> Term:
        # At its ends it has no slope, whatever `clamp` has.
        return self._limit(self._limit(x, float(min_val), op.LE), float(max_val), op.GE)

    def leaky_relu(self, x: Term, negative_slope: float = 0.01) -> Term:
        return where(x.do(op.GT, 0.0), x, x * negative_slope)

    def elu(self, x: Term, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Term:
        below = where(x.do(op.GT, 0.0), 0.0, x)  # what is not taken is finite
        low = (below * input_scale).do(op.EXPM1) * (alpha * scale)
        return where(x.do(op.GT, 0.0), x * scale, low)

    def celu(self, x: Term, alpha: float = 1) -> Term:
        return self.elu(x, alpha, 1, 1 / alpha)

    def silu(self, x: Term) -> Term:
        return x * x.do(op.SIGMOID)

    def gelu(self, x: Term, approximate: str = "none") -> Term:
        if approximate == "none":
            inner = (x * math.sqrt(0.5)).do(op.ERF)
        else:
            cubed = (self.pow(x, 3.0) * 0.044715).do(op.FMA, 1.0, x)
            inner = (cubed * math.sqrt(2 / math.pi)).do(op.TANH)
        return x * 0.5 * (inner + 1.0)

    def softplus(self, x: Term, beta: float = 1, threshold: float = 20) -> Term:
        scaled = x * beta
        # Without overflow: max(x, 0) + log(1 + exp(-|x|)), with the slope 1/2 at 0.
        below = where(scaled.do(op.GT, 0.0), -scaled, scaled)
        low = below.do(op.EXP).do(op.LOG1P)
        soft = (scaled.do(op.RELU) + low) * (1 / beta)
        return where(scaled.do(op.GT, float(threshold)), x, soft)

    def masked_fill(self, x: Term, mask: Term, value: AnyTerm) -> Term:
        return where(mask, value, x)

    def bitwise_not(self, x: Term) -> Term:
        return x.do(op.LOGICAL_NOT)

    def bitwise_and(self, x: AnyTerm, y: AnyTerm) -> Term:
        return self._do(op.LOGICAL_AND, x, y)

    def bitwise_or(self, x: AnyTerm, y: AnyTerm) -> Term:
        return self._do(op.LOGICAL_OR, x, y)

    def _times(self, x: AnyTerm, factor: float) -> AnyTerm:
        return x if factor == 1 else self._do(op.MUL, x, float(factor))


def elementwise(to: ValueBuilder) -> dict[Any, Callable[..., View]]:
    """Operation of torch -> what writes it down."""

    def composed(method: Callable[..., Term]) -> Callable[..., View]:
        def write(*args: Any, **options: Any) -> View:
            named = {name: term(value) for name, value in options.items()}
            return method(*map(term, args), **named).view

        return write

    def term(operand: Any) -> Any:
        return Term(to, operand) if isinstance(operand, View) else operand

    several, names = Composed(to), [name for name in vars(Composed) if not name.startswith("_")]
    return {
        **{getattr(aten, own.name): functools.partial(to.apply, own) for own in SAME},
        **{getattr(aten, name): composed(getattr(several, name)) for name in names},
    }
