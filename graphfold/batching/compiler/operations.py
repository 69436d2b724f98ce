"""The operations that a cell is made of, one record each: what it does, costs, and its derivative.

A derivative is a rule: from the cotangent `g` of what was computed, the gradient of the loss with
respect to it, it gives the cotangents of the inputs. Most are formulas: where `y = exp(x)`, that of
`x` is `g * y`. What is computed number by number, torch and Triton compute by what stands here;
native code computes the operations in native/elementwise.h and native/rows.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, TypeAlias

from graphfold.batching.compiler.order import is_cheap
from graphfold.batching.compiler.program import ALL_EDGES, ROWS, TYPE_ROWS
from graphfold.batching.compiler.values import (
    BY_NUMBER,
    COPIED,
    EDGES,
    GIVEN,
    LITTLE,
    LITTLE_OF_EDGES,
    NODES,
    NOTHING,
    ON_ROWS,
    PRODUCT,
    SINK,
    Operation,
    Value,
    ValueBuilder,
    View,
)

#: Of some inputs, each with its cotangent.
Cotangents: TypeAlias = Iterator[tuple[View, View]]


class Backward(Protocol):
    """Backward, as rules see it."""

    to: ValueBuilder

    def wants(self, view: View) -> bool:
        """True if the gradient of an input is wanted."""

    def product(self, value: Value, grad: View) -> None:
        """Notes the gradients of a weight and a bias."""

    def rows(self, view: View, like: Value) -> View:
        """A view, of a whole value with a row of its own for each of another."""


class Term:
    """A view in a formula; its operators append elementwise operations.

    Args:
        to: where they are written.
        view: the view.
    """

    def __init__(self, to: ValueBuilder, view: View) -> None:
        self.to, self.view = to, view

    def do(self, operation: Operation, *others: Term | float) -> Term:
        """An operation on this and others."""
        return Term(self.to, self.to.apply(operation, self.view, *map(operand, others)))

    def __add__(self, other: Term | float) -> Term:
        return self.do(ADD, other)

    def __sub__(self, other: Term | float) -> Term:
        return self.do(SUB, other)

    def __mul__(self, other: Term | float) -> Term:
        return self.do(MUL, other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.do(DIV, other)

    def __neg__(self) -> Term:
        return self.do(NEG)


#: What stands in a formula.
AnyTerm: TypeAlias = Term | float


def operand(term: AnyTerm) -> View | float:
    """A term as an operation takes it."""
    return term.view if isinstance(term, Term) else term


def where(condition: Term, x: AnyTerm, y: AnyTerm) -> Term:
    """A choice: x where a condition holds, and y elsewhere."""
    return condition.do(WHERE, x, y)


def _formulas(
    *formulas: Callable[..., Term] | None,
) -> Callable[[Backward, Value, View], Cotangents]:
    """A rule of a formula for each input: of the cotangent, the inputs, and the result."""

    def rule(b: Backward, v: Value, g: View) -> Cotangents:
        terms = [Term(b.to, view) for view in (g, *v.inputs, v.view)]
        for view, formula in zip(v.inputs, formulas, strict=True):
            if formula is not None and b.wants(view):
                yield view, formula(*terms).view

    return rule


def _by_number(
    name: str,
    triton: str = "",
    *formulas: Callable[..., Term] | None,
    rule: Callable[[Backward, Value, View], Cotangents] | None = None,
    **options: Any,
) -> Operation:
    """An elementwise operation; its rule is a formula for each input, or is given."""
    rule = _formulas(*formulas) if formulas else rule
    return Operation(name, BY_NUMBER, rule, triton=triton, **options)


# What a cell is given.

X = Operation("x", GIVEN, source=("x", TYPE_ROWS), gradient=("x_grad", TYPE_ROWS))
EDGE = Operation("edge", GIVEN, source=("edge", ALL_EDGES), gradient=("column_grad", ALL_EDGES))
#: The state of a node before the pass.
PREVIOUS = Operation("previous", GIVEN, source=("given", ROWS), gradient=("given_grad", ROWS))
#: The number of a node's edges.
COUNT_EDGES = Operation("count_edges", ON_ROWS, cost=NOTHING)
#: The number of a child's children, whether it is the node itself, or its place among the edges.
INTEGER = Operation("integer", ON_ROWS, cost=NOTHING)

# Rows of other nodes and of tables.

_CHILDREN = "read", "child_row"

GATHER = Operation(
    "gather", COPIED, cost=LITTLE, fetched=_CHILDREN, gradient=("edge_grad", ALL_EDGES)
)
#: The same node's row in the round before.
GATHER_PREVIOUS = Operation(
    "gather_previous",
    COPIED,
    cost=LITTLE,
    native="gather",
    fetched=("read", "previous_row"),
    gradient=("previous_grad", ROWS),
)
#: The row of a table that an edge has, see `Cell.before_edges`.
LOOK_UP = Operation("look_up", COPIED, cost=LITTLE, native="gather", fetched=("table", "kind"))
#: The sum over a node's children, whose rows are never held.
GATHER_SUM = Operation(
    "gather_sum", ON_ROWS, cost=LITTLE, fetched=_CHILDREN, gradient=("node_grad", ROWS)
)


def _gather_weighted(b: Backward, v: Value, g: View) -> Cotangents:
    """A weighted sum: rows pull their gradient; a weight's is the product with its row."""
    (weight,) = v.inputs
    if b.wants(weight):
        rows = b.to.add(GATHER, EDGES, v.shape, name=v.name)
        expanded = b.to.add(EXPAND, EDGES, v.shape, [b.to.contiguous(g)])
        by_edge = b.to.apply(MUL, rows, expanded)
        yield weight, b.to.add(REDUCE_SUM, EDGES, weight.shape, [by_edge])


#: The same of rows times a number each.
GATHER_WEIGHTED = Operation(
    "gather_weighted",
    ON_ROWS,
    _gather_weighted,
    cost=LITTLE,
    fetched=_CHILDREN,
    gradient=("weighted_grad", ROWS),
)


def _sum_edges(b: Backward, v: Value, g: View) -> Cotangents:
    yield v.inputs[0], b.to.add(EXPAND, EDGES, g.shape, [b.to.contiguous(g)])


def _max_edges(b: Backward, v: Value, g: View) -> Cotangents:
    (x,) = v.inputs
    expanded = b.to.add(EXPAND, EDGES, v.shape, [v.view])
    is_highest = b.to.apply(EQ, x, expanded)
    count = b.to.add(SUM_EDGES, NODES, v.shape, [is_highest])
    share = b.to.apply(DIV, g, b.to.apply(MAXIMUM, count, 1.0))
    yield x, b.to.apply(MUL, b.to.add(EXPAND, EDGES, v.shape, [share]), is_highest)


def _expand(b: Backward, v: Value, g: View) -> Cotangents:
    yield v.inputs[0], b.to.add(SUM_EDGES, NODES, g.shape, [b.to.contiguous(g)])


SUM_EDGES = Operation("sum_edges", ON_ROWS, _sum_edges)
MAX_EDGES = Operation("max_edges", ON_ROWS, _max_edges)
#: The row of its node for each edge.
EXPAND = Operation("expand", COPIED, _expand, native="copy")

# Products with a weight.


def _multiply(b: Backward, v: Value, g: View) -> Cotangents:
    x, weight = v.inputs[:2]
    g = b.to.contiguous(g)
    b.product(v, g)
    if b.wants(x):
        back = MULTIPLY if v.operation is MULTIPLY_TRANSPOSED else MULTIPLY_TRANSPOSED
        yield x, b.to.add(back, g.space, x.shape, [g, weight])


MULTIPLY = Operation("multiply", PRODUCT, _multiply)
MULTIPLY_TRANSPOSED = Operation("multiply_transposed", PRODUCT, _multiply)

# Numbers of a row together.


def _cat(b: Backward, v: Value, g: View) -> Cotangents:
    yield from g.cut(v.inputs, v.number)


def _reduce_sum(b: Backward, v: Value, g: View) -> Cotangents:
    (x,) = v.inputs
    yield x, g.expanded(x.shape)


def _reduce_max(b: Backward, v: Value, g: View) -> Cotangents:
    (x,) = v.inputs
    is_highest = b.to.apply(EQ, x, v.view)
    count = b.to.add(REDUCE_SUM, v.space, v.shape, [is_highest])
    yield x, b.to.apply(MUL, b.to.apply(DIV, g, count), is_highest)


CAT = Operation("cat", BY_NUMBER, _cat)
REDUCE_SUM = Operation("reduce_sum", BY_NUMBER, _reduce_sum)
REDUCE_MAX = Operation("reduce_max", BY_NUMBER, _reduce_max)

# Number by number.

_ERF = 2 / math.sqrt(math.pi)


def _div(b: Backward, v: Value, g: View) -> Cotangents:
    x, y = v.inputs
    share = Term(b.to, g) / Term(b.to, y)
    yield x, share.view
    if b.wants(y):
        yield y, (-(share * Term(b.to, v.view))).view


def _pow(b: Backward, v: Value, g: View) -> Cotangents:
    x, y = v.inputs
    base, cotangent = Term(b.to, x), Term(b.to, g)
    if b.wants(x):
        literal = y.value.literal
        exponent = Term(b.to, b.rows(y, v) if literal is None else y)
        less = base.do(POW, exponent - 1.0 if literal is None else literal - 1)
        share = cotangent * (exponent * less)
        yield x, where(Term(b.to, b.rows(y, v)).do(EQ, 0.0), 0.0, share).view
    if b.wants(y):
        base = Term(b.to, b.rows(x, v))
        grown = Term(b.to, v.view) * base.do(LOG)
        is_zero = base.do(EQ, 0.0)
        is_flat = is_zero.do(LOGICAL_AND, Term(b.to, b.rows(y, v)).do(GE, 0.0))
        yield y, (cotangent * where(is_flat, 0.0, grown)).view


def _extreme(b: Backward, v: Value, g: View) -> Cotangents:
    """Maximum and minimum: equal numbers share alike, as in torch."""
    x, y = v.inputs
    cotangent, half = Term(b.to, g), Term(b.to, g) * 0.5
    is_beyond = GT if v.operation is MAXIMUM else LT
    for own, other in ((x, y), (y, x)):
        if b.wants(own):
            one, two = Term(b.to, own), Term(b.to, other)
            rest = where(one.do(EQ, two), half, 0.0)
            yield own, where(one.do(is_beyond, two), cotangent, rest).view


def _relu(g: Term, x: Term, y: Term) -> Term:
    return g.do(RELU_GRAD, x if is_cheap(y.view.value) else y)


def _standardise(b: Backward, v: Value, g: View) -> Cotangents:
    """Less the mean and divided by the spread over a group, which depend on all of its rows.

    Ioffe and Szegedy (2015), https://arxiv.org/abs/1502.03167, section 3. Its result is computed
    once more, since it is read before the means are there and after. Rows that the means do not
    count (`v.number`: which do, and their share) are changed by them, and do not change them.
    """
    x, _, scale = v.inputs
    cotangent = Term(b.to, g)
    means = b.to.mean_of_group(g), b.to.mean_of_group((cotangent * Term(b.to, v.view)).view)
    mean, slope = (Term(b.to, own) for own in means)
    again = Term(b.to, b.to.add(STANDARDISE, NODES, v.shape, v.inputs))
    if v.number is None:
        rest = cotangent - mean - again * slope
    else:
        real, share = (Term(b.to, own) for own in v.number)
        rest = cotangent - (mean / share + again * (slope / share)) * real
    yield x, (rest * Term(b.to, scale)).view


_of_edges = partial(_by_number, cost=LITTLE_OF_EDGES)

NEG = _of_edges("neg", "-{x}", lambda g, x, y: -g)
ABS = _by_number("abs", "tl.abs({x})", lambda g, x, y: g * x.do(SIGN))
SIGN: Operation = _by_number(
    "sign", "tl.where({x} > 0, {one}, {zero}) - tl.where({x} < 0, {one}, {zero})"
)
EXP = _by_number("exp", "tl.exp({x})", lambda g, x, y: g * y)
EXPM1 = _by_number("expm1", "_expm1({x})", lambda g, x, y: g * (y + 1.0))
LOG = _by_number("log", "tl.log({x})", lambda g, x, y: g / x)
LOG1P = _by_number("log1p", "_log1p({x})", lambda g, x, y: g / (x + 1.0))
SQRT = _by_number("sqrt", "tl.sqrt({x})", lambda g, x, y: g / (y * 2.0))
RSQRT = _by_number("rsqrt", "{one} / tl.sqrt({x})", lambda g, x, y: g * -0.5 * (y * (y * y)))
RECIPROCAL = _by_number("reciprocal", "{one} / {x}", lambda g, x, y: -(g * (y * y)))
SIGMOID = _by_number(
    "sigmoid", "{one} / ({one} + tl.exp(-{x}))", lambda g, x, y: g.do(SIGMOID_GRAD, y)
)
TANH = _by_number("tanh", "_tanh({x})", lambda g, x, y: g.do(TANH_GRAD, y))
RELU = _of_edges("relu", "tl.where({x} < 0, {zero}, {x})", _relu)
SIN = _by_number("sin", "tl.sin({x})", lambda g, x, y: g * x.do(COS))
COS: Operation = _by_number("cos", "tl.cos({x})", lambda g, x, y: -(g * x.do(SIN)))
ERF = _by_number("erf", "tl.erf({x})", lambda g, x, y: g * ((-(x * x)).do(EXP) * _ERF))

ADD = _of_edges("add", "{x} + {y}", lambda g, x, y, z: g, lambda g, x, y, z: g)
SUB = _of_edges("sub", "{x} - {y}", lambda g, x, y, z: g, lambda g, x, y, z: -g)
MUL = _of_edges("mul", "{x} * {y}", lambda g, x, y, z: g * y, lambda g, x, y, z: g * x, neutral=1.0)
DIV = _by_number("div", "{x} / {y}", rule=_div)
POW = _by_number("pow", rule=_pow)
_EXTREME = "tl.{name}({{x}}, {{y}}, propagate_nan=tl.PropagateNan.ALL)"
MAXIMUM, MINIMUM = (
    _by_number(name, _EXTREME.format(name=name), rule=_extreme) for name in ("maximum", "minimum")
)
EQ, NE, LT, LE, GT, GE = (
    _by_number(name, f"{{x}} {sign} {{y}}", is_truth=True)
    for name, sign in zip(
        ("eq", "ne", "lt", "le", "gt", "ge"), ("==", "!=", "<", "<=", ">", ">="), strict=True
    )
)
LOGICAL_AND = _by_number("logical_and", "({x} != 0) & ({y} != 0)", is_truth=True)
LOGICAL_OR = _by_number("logical_or", "({x} != 0) | ({y} != 0)", is_truth=True)
LOGICAL_NOT = _by_number("logical_not", "{x} == 0", is_truth=True)
WHERE: Operation = _by_number(
    "where",
    "tl.where({x} != 0, {y}, {z})",
    None,
    lambda g, condition, x, y, z: where(condition, g, 0.0),
    lambda g, condition, x, y, z: condition.do(WHERE, 0.0, g),
)
#: x * y + z.
FMA = _by_number(
    "fma",
    "{x} * {y} + {z}",
    lambda g, x, y, z, sum_: g * y,
    lambda g, x, y, z, sum_: g * x,
    lambda g, x, y, z, sum_: g,
)
#: (x - mean) * scale, over a group.
STANDARDISE = _by_number("standardise", "({x} - {y}) * {z}", rule=_standardise, cost=LITTLE)
#: The same numbers, without a derivative.
DETACH = Operation("detach", BY_NUMBER, native="copy")
#: One number everywhere.
FILL = Operation("fill", BY_NUMBER, cost=NOTHING, native="copy")

# What backward alone computes.

SIGMOID_GRAD: Operation = _by_number("sigmoid_grad", "{x} * ({y} * ({one} - {y}))")
TANH_GRAD: Operation = _by_number("tanh_grad", "{x} * ({one} - {y} * {y})")
RELU_GRAD: Operation = _by_number("relu_grad", "tl.where({y} <= 0, {zero}, {x})")
#: The cotangent of a state: what the readers of its row have left, and the upstream gradient.
PULL = Operation("pull", ON_ROWS)
#: The sum of the cotangents of the views of a value, each at its place.
ASSEMBLE = Operation("assemble", BY_NUMBER)
#: The gradient of a constant, and that of the rows of a table.
ACCUMULATE = Operation("accumulate", SINK)
LOOK_UP_ADD = Operation("look_up_add", SINK)
