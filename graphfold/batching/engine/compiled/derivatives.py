"""Derivatives: the values of backward, from those of forward.

A rule says what an operation asks of each of its inputs, given what is asked of its result. What
is asked of an input is asked of a view: of a value, all that its views are asked is added up, each
at its place; where a view stretches a dimension, the numbers along it are added up, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from graphfold.batching.engine.compiled.values import (
    CONSTANT,
    EDGE,
    EDGES,
    FETCHES,
    NODES,
    PREVIOUS,
    WHOLE,
    Value,
    ValueBuilder,
    View,
    X,
)

#: (what asks, what is asked of its result) -> for some inputs, what is asked of them.
Asked: TypeAlias = Iterator[tuple[View, View]]


@dataclass(frozen=True)
class Product:
    """The gradient of a weight [k, m]: x.T @ grad, over all rows of the pass at once.

    If the weight is transposed, [m, k], then so is its gradient.
    """

    weight: Value
    bias: Value | None
    x: View
    grad: View
    is_transposed: bool


@dataclass
class Gradients:
    """The computation of backward.

    Args:
        values: in the order in which they are computed; the gradients of tables, and of constants
            that are no weights, are added up there.
        sources: (operation, name) of what else the cell reads -> its gradient.
        products: the gradients of weights.
    """

    values: list[Value]
    sources: dict[tuple[str, str], View] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)


def differentiate(
    values: list[Value],
    outputs: Mapping[str, View],
    needed: Callable[[Value], bool],
    arity: int | None,
) -> Gradients:
    """The gradients of a cell.

    Args:
        values: of its forward, in order.
        outputs: field -> the view that is its state.
        needed: whether the gradient of a source or constant is wanted.
        arity: the number of children, or None if it differs.
    """
    return _Backward(values, outputs, needed, arity).run()


class _Backward:
    def __init__(
        self,
        values: list[Value],
        outputs: Mapping[str, View],
        needed: Callable[[Value], bool],
        arity: int | None,
    ) -> None:
        self._forward, self._outputs, self._needed = values, outputs, needed
        self.to = ValueBuilder(arity, "asked")
        self._asked: dict[Value, list[tuple[View, View]]] = {}
        self._found = Gradients(self.to.values)
        self._active = self._find_active()

    def run(self) -> Gradients:
        for name, view in self._outputs.items():
            if view.value in self._active:
                seed = self.to.add("pull", NODES, view.shape, name=name)
                self._ask(view, seed)
        for value in reversed(self._forward):
            if value not in self._active or value not in self._asked:
                continue
            grad = self._assembled(value)
            if value.operation == "look_up" and self._needed(value):
                self.to.add("look_up_add", EDGES, grad.shape, [grad], value.name)
            elif value.operation in (X, EDGE, PREVIOUS, *FETCHES) and self._needed(value):
                self._found.sources[value.operation, value.name] = grad
            if value.operation.partition(":")[0] in _RULES:
                rule = _RULES[value.operation.partition(":")[0]]
                for view, asked in rule(self, value, grad):
                    self._ask(view, asked)
        return self._found

    def _find_active(self) -> set[Value]:
        """The values through which gradients go."""
        active: set[Value] = set()
        for value in self._forward:
            is_source = value.operation in (X, EDGE, PREVIOUS, *FETCHES)
            has_rule = value.operation.partition(":")[0] in _RULES
            if (is_source and self._needed(value)) or (
                has_rule and any(self._is_active(view.value, active) for view in value.inputs)
            ):
                active.add(value)
        return active

    def _is_active(self, value: Value, active: set[Value]) -> bool:
        return value in active or (value.operation == CONSTANT and self._needed(value))

    def _ask(self, view: View, asked: View) -> None:
        value = view.value
        if not self.wants(view):
            return
        if value.operation == CONSTANT:
            sink = self.to.add("accumulate", asked.space, asked.shape, [asked], value.name)
            sink.value.name, sink.value.number = value.name, view
        else:
            self._asked.setdefault(value, []).append((view, asked))

    def wants(self, view: View) -> bool:
        """True if the gradient of an input is wanted."""
        return self._is_active(view.value, self._active)

    def _assembled(self, value: Value) -> View:
        """All that is asked of a value, added up."""
        asked = self._asked[value]
        if len(asked) == 1:
            view, grad = asked[0]
            if view.is_all and not _is_stretched(view) and grad.shape == view.shape:
                return self._as_value(self.to.contiguous(grad), value)
        made = self.to.add("assemble", value.space, value.shape, [grad for _, grad in asked])
        made.value.number = tuple(view for view, _ in asked)  # where each goes
        return made

    def _as_value(self, grad: View, value: Value) -> View:
        """The gradient of all of a value, in its own space and shape."""
        if grad.space == value.space:
            return self.to.reshape(grad, value.shape)
        if value.space == NODES:
            return self.to.reshape(self.to.in_space(grad, NODES), value.shape)
        by_edge = self.to.reshape(grad, (self.to.arity or 1, *value.shape))
        return self.to.in_space(by_edge, EDGES)

    # What follows is called by rules.

    def product(self, value: Value, grad: View) -> None:
        """Notes the gradients of a weight and a bias."""
        x, weight, *bias = value.inputs
        wants_bias = bool(bias) and self.wants(bias[0])
        if self.wants(weight):
            own = bias[0].value if wants_bias else None
            is_transposed = value.operation == "multiply_transposed"
            found = Product(weight.value, own, x, self.to.contiguous(grad), is_transposed)
            self._found.products.append(found)
        elif wants_bias:
            self._ask(bias[0], grad)

    def rows(self, view: View, like: Value) -> View:
        """A view, of a whole value with a row of its own for each of another."""
        if view.space != WHOLE:
            return view
        return self.to.add("copy", like.space, like.shape, [view.expanded(like.shape)])

    def do(self, operation: str, *operands: View | float) -> View:
        """An elementwise operation of backward."""
        return self.to.apply(operation, *operands)


def _is_stretched(view: View) -> bool:
    return any(s == 0 and size > 1 for s, size in zip(view.steps, view.shape, strict=True))


def _add(b: _Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    yield x, g
    yield y, g


def _sub(b: _Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    yield x, g
    if b.wants(y):
        yield y, b.do("neg", g)


def _mul(b: _Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    if b.wants(x):
        yield x, b.do("mul", g, y)
    if b.wants(y):
        yield y, b.do("mul", g, x)


def _div(b: _Backward, v: Value, g: View) -> Asked:
    x, y = v.inputs
    share = b.do("div", g, y)
    yield x, share
    if b.wants(y):
        yield y, b.do("neg", b.do("mul", share, v.view))


def _fma(b: _Backward, v: Value, g: View) -> Asked:
    x, y, z = v.inputs
    if b.wants(x):
        yield x, b.do("mul", g, y)
    if b.wants(y):
        yield y, b.do("mul", g, x)
    yield z, g


def _pow(b: _Backward, v: Value, g: View) -> Asked:
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


def _less(b: _Backward, y: View) -> View | float:
    """One less."""
    return b.do("sub", y, 1.0) if y.space != WHOLE else float(y.value.number) - 1


def _where(b: _Backward, v: Value, g: View) -> Asked:
    condition, x, y = v.inputs
    if b.wants(x):
        yield x, b.do("where", condition, g, 0.0)
    if b.wants(y):
        yield y, b.do("where", condition, 0.0, g)


def _extreme(b: _Backward, v: Value, g: View) -> Asked:
    """Maximum and minimum: equal numbers share alike, as in torch."""
    x, y = v.inputs
    half = b.do("mul", g, 0.5)
    is_x = "gt" if v.operation == "maximum" else "lt"
    for own, other in ((x, y), (y, x)):
        if b.wants(own):
            rest = b.do("where", b.do("eq", own, other), half, 0.0)
            yield own, b.do("where", b.do(is_x, own, other), g, rest)


def _unary(rule: Callable[[_Backward, View, View, View], View]) -> Callable[..., Asked]:
    """A rule from what is asked, the input and the result."""

    def asked(b: _Backward, v: Value, g: View) -> Asked:
        yield v.inputs[0], rule(b, g, v.inputs[0], v.view)

    return asked


def _cat(b: _Backward, v: Value, g: View) -> Asked:
    dim, start = int(v.operation.partition(":")[2]), 0
    for view in v.inputs:
        shape = list(g.shape)
        shape[dim] = view.shape[dim]
        yield view, g.arranged(shape, g.steps, g.offset + start * g.steps[dim])
        start += view.shape[dim]


def _multiply(b: _Backward, v: Value, g: View) -> Asked:
    x, weight = v.inputs[:2]
    g = b.to.contiguous(g)
    b.product(v, g)
    if b.wants(x):
        back = "multiply" if v.operation == "multiply_transposed" else "multiply_transposed"
        yield x, b.to.add(back, g.space, x.shape, [g, weight])


def _reduce_sum(b: _Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    yield x, g.expanded(x.shape)


def _reduce_max(b: _Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    is_highest = b.do("eq", x, v.view)
    count = b.to.add("reduce_sum", v.space, v.shape, [is_highest])
    yield x, b.do("mul", b.do("div", g, count), is_highest)


def _sum_edges(b: _Backward, v: Value, g: View) -> Asked:
    yield v.inputs[0], b.to.add("expand", EDGES, g.shape, [b.to.contiguous(g)])


def _max_edges(b: _Backward, v: Value, g: View) -> Asked:
    (x,) = v.inputs
    expanded = b.to.add("expand", EDGES, v.shape, [v.view])
    is_highest = b.do("eq", x, expanded)
    count = b.to.add("sum_edges", NODES, v.shape, [is_highest])
    share = b.do("div", g, b.do("maximum", count, 1.0))
    yield x, b.do("mul", b.to.add("expand", EDGES, v.shape, [share]), is_highest)


def _gather_weighted(b: _Backward, v: Value, g: View) -> Asked:
    """The gradient of the rows is pulled by them; that of a weight is the product with its row."""
    (weight,) = v.inputs
    if b.wants(weight):
        rows = b.to.add("gather", EDGES, v.shape, name=v.name)
        asked = b.to.add("expand", EDGES, v.shape, [b.to.contiguous(g)])
        yield weight, b.to.add("reduce_sum", EDGES, weight.shape, [b.do("mul", rows, asked)])


def _expand(b: _Backward, v: Value, g: View) -> Asked:
    yield v.inputs[0], b.to.add("sum_edges", NODES, g.shape, [b.to.contiguous(g)])


def _standardise(b: _Backward, v: Value, g: View) -> Asked:
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

_RULES: Mapping[str, Callable[[_Backward, Value, View], Asked]] = {
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
    "relu": _unary(lambda b, g, x, y: b.do("relu_grad", g, y)),
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
