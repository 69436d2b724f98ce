"""The rules of differentiation: what operations ask of their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

from graphfold.batching.compiler.recomputation import is_cheap
from graphfold.batching.compiler.values import EDGES, NODES, WHOLE, Value, ValueBuilder, View

#: (what asks, what is asked of its result) -> for some inputs, what is asked of them.
Asked: TypeAlias = Iterator[tuple[View, View]]


class Backward(Protocol):
    """The values of backward, as rules see them."""

    to: ValueBuilder

    def wants(self, view: View) -> bool:
        """True if the gradient of an input is wanted."""

    def product(self, value: Value, grad: View) -> None:
        """Notes the gradients of a weight and a bias."""

    def rows(self, view: View, like: Value) -> View:
        """A view, of a whole value with a row of its own for each of another."""

    def do(self, operation: str, *operands: View | float) -> View:
        """An elementwise operation of backward."""


def _add(b: Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    yield x, g
    yield y, g


def _sub(b: Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    yield x, g
    if b.wants(y):
        yield y, b.do("neg", g)


def _mul(b: Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    if b.wants(x):
        yield x, b.do("mul", g, y)
    if b.wants(y):
        yield y, b.do("mul", g, x)


def _div(b: Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    share = b.do("div", g, y)
    yield x, share
    if b.wants(y):
        yield y, b.do("neg", b.do("mul", share, v.view))


def _fma(b: Backward, v: Value, g: View) -> Asked:
    x, y, z = v.inputs
    if b.wants(x):
        yield x, b.do("mul", g, y)
    if b.wants(y):
        yield y, b.do("mul", g, x)
    yield z, g


def _pow(b: Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    if b.wants(x):
        exponent = b.rows(y, v) if y.value.number is None or y.value.name else y
        less = b.do("pow", x, _less(b, exponent))
        share = b.do("mul", g, b.do("mul", exponent, less))
        yield x, b.do("where", b.do("eq", b.rows(y, v), 0.0), 0.0, share)
    if b.wants(y):
        base = b.rows(x, v)
        grown = b.do("mul", v.view, b.do("log", base))
        is_flat = b.do("logical_and", b.do("eq", base, 0.0), b.do("ge", b.rows(y, v), 0.0))
        yield y, b.do("mul", g, b.do("where", is_flat, 0.0, grown))


def _less(b: Backward, y: View) -> View | float:
    """One less."""
    return b.do("sub", y, 1.0) if y.space != WHOLE else float(y.value.number) - 1


def _where(b: Backward, v: Value, g: View) -> Asked:
    condition, x, y = v.inputs
    if b.wants(x):
        yield x, b.do("where", condition, g, 0.0)
    if b.wants(y):
        yield y, b.do("where", condition, 0.0, g)


def _extreme(b: Backward, v: Value, g: View) -> Asked:
    """Maximum and minimum: equal numbers share alike, as in torch."""
    x, y = v.inputs
    half = b.do("mul", g, 0.5)
    is_x = "gt" if v.operation == "maximum" else "lt"
    for own, other in ((x, y), (y, x)):
        if b.wants(own):
            rest = b.do("where", b.do("eq", own, other), half, 0.0)
            yield own, b.do("where", b.do(is_x, own, other), g, rest)


def _unary(rule: Callable[[Backward, View, View, View], View]) -> Callable[..., Asked]:
    """A rule from what is asked, the input and the result."""

    def asked(b: Backward, v: Value, g: View) -> Asked:
        yield v.inputs[0], rule(b, g, v.inputs[0], v.view)

    return asked


def _cat(b: Backward, v: Value, g: View) -> Asked:
    dim, start = int(v.operation.partition(":")[2]), 0
    for view in v.inputs:
        shape = list(g.shape)
        shape[dim] = view.shape[dim]
        yield view, g.arranged(shape, g.steps, g.offset + start * g.steps[dim])
        start += view.shape[dim]


def _multiply(b: Backward, v: Value, g: View) -> Asked:
    x, weight = v.inputs[:2]
    g = b.to.contiguous(g)
    b.product(v, g)
    if b.wants(x):
        back = "multiply" if v.operation == "multiply_transposed" else "multiply_transposed"
        yield x, b.to.add(back, g.space, x.shape, [g, weight])


def _reduce_sum(b: Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    yield x, g.expanded(x.shape)


def _reduce_max(b: Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    is_highest = b.do("eq", x, v.view)
    count = b.to.add("reduce_sum", v.space, v.shape, [is_highest])
    yield x, b.do("mul", b.do("div", g, count), is_highest)


def _sum_edges(b: Backward, v: Value, g: View) -> Asked:
    yield v.inputs[0], b.to.add("expand", EDGES, g.shape, [b.to.contiguous(g)])


def _max_edges(b: Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    expanded = b.to.add("expand", EDGES, v.shape, [v.view])
    is_highest = b.do("eq", x, expanded)
    count = b.to.add("sum_edges", NODES, v.shape, [is_highest])
    share = b.do("div", g, b.do("maximum", count, 1.0))
    yield x, b.do("mul", b.to.add("expand", EDGES, v.shape, [share]), is_highest)


def _gather_weighted(b: Backward, v: Value, g: View) -> Asked:
    """The gradient of the rows is pulled by them; that of a weight is the product with its row."""
    (weight,) = v.inputs
    if b.wants(weight):
        rows = b.to.add("gather", EDGES, v.shape, name=v.name)
        asked = b.to.add("expand", EDGES, v.shape, [b.to.contiguous(g)])
        yield weight, b.to.add("reduce_sum", EDGES, weight.shape, [b.do("mul", rows, asked)])


def _expand(b: Backward, v: Value, g: View) -> Asked:
    yield v.inputs[0], b.to.add("sum_edges", NODES, g.shape, [b.to.contiguous(g)])


def _standardise(b: Backward, v: Value, g: View) -> Asked:
    """Less the mean and divided by the spread over a group, which depend on all of its rows.

    Ioffe and Szegedy (2015), https://arxiv.org/abs/1502.03167, section 3. Its result is computed
    once more, since it is read before the means are there and after.
    """
    x, _, scale = v.inputs
    mean, slope = b.to.mean_of_group(g), b.to.mean_of_group(b.do("mul", g, v.view))
    again = b.to.add("standardise", NODES, v.shape, v.inputs)
    rest = b.do("sub", b.do("sub", g, mean), b.do("mul", again, slope))
    yield x, b.do("mul", rest, scale)


_ERF = 2 / math.sqrt(math.pi)

RULES: Mapping[str, Callable[[Backward, Value, View], Asked]] = {
    "copy": _unary(lambda b, g, x, y: g),
    "neg": _unary(lambda b, g, x, y: b.do("neg", g)),
    "abs": _unary(lambda b, g, x, y: b.do("mul", g, b.do("sign", x))),
    "exp": _unary(lambda b, g, x, y: b.do("mul", g, y)),
    "log": _unary(lambda b, g, x, y: b.do("div", g, x)),
    "log1p": _unary(lambda b, g, x, y: b.do("div", g, b.do("add", x, 1.0))),
    "expm1": _unary(lambda b, g, x, y: b.do("mul", g, b.do("add", y, 1.0))),
    "sqrt": _unary(lambda b, g, x, y: b.do("div", g, b.do("mul", y, 2.0))),
    "rsqrt": _unary(
        lambda b, g, x, y: b.do("mul", b.do("mul", g, -0.5), b.do("mul", y, b.do("mul", y, y)))
    ),
    "reciprocal": _unary(lambda b, g, x, y: b.do("neg", b.do("mul", g, b.do("mul", y, y)))),
    "sigmoid": _unary(lambda b, g, x, y: b.do("sigmoid_grad", g, y)),
    "tanh": _unary(lambda b, g, x, y: b.do("tanh_grad", g, y)),
    "relu": _unary(lambda b, g, x, y: b.do("relu_grad", g, x if is_cheap(y.value) else y)),
    "sin": _unary(lambda b, g, x, y: b.do("mul", g, b.do("cos", x))),
    "cos": _unary(lambda b, g, x, y: b.do("neg", b.do("mul", g, b.do("sin", x)))),
    "erf": _unary(
        lambda b, g, x, y: b.do(
            "mul", g, b.do("mul", b.do("exp", b.do("neg", b.do("mul", x, x))), _ERF)
        )
    ),
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "fma": _fma,
    "pow": _pow,
    "where": _where,
    "maximum": _extreme,
    "minimum": _extreme,
    "cat": _cat,
    "multiply": _multiply,
    "multiply_transposed": _multiply,
    "reduce_sum": _reduce_sum,
    "reduce_max": _reduce_max,
    "sum_edges": _sum_edges,
    "max_edges": _max_edges,
    "expand": _expand,
    "gather_weighted": _gather_weighted,
    "standardise": _standardise,
}
