"""Every elementwise operation that is compiled, and its derivative, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphfold.batching import Batch, Cell, Network, Up, build_schedule
from graphfold.batching.compiler import elementwise
from graphfold.dag import GraphBuilder, NodeType, Schema

pytestmark = pytest.mark.usefixtures("backend")

SCHEMA = Schema(types=(NodeType("word", 0),))
#: With ties, both zeros, what overflows and what is not finite.
SPECIAL = [-1e3, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 25.0, 1e3]
NOT_FINITE = [-torch.inf, torch.inf, torch.nan]
Function = Callable[..., Tensor]

UNARY: dict[str, Function] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "sign": lambda a: torch.sign(a) + a,
    "square": torch.square,
    **{f"pow {e}": (lambda a, e=e: a**e) for e in (0, 0.5, 1, 2, 3, 4, 1.7, -1, -2)},
    "pow -0.5": lambda a: (a + 0.0) ** -0.5,
    "2 to the power": lambda a: 2**a,
    "add a number": lambda a: torch.add(1.5, a, alpha=2),
    "subtract a number": lambda a: a - 1.5,
    "rsub": lambda a: 1 - a,
    "rsub with alpha": lambda a: torch.rsub(a, 2.0, alpha=3),
    "times a number": lambda a: 3 * a,
    "div by a number": lambda a: a / 3,
    "div by zero": lambda a: a / 0,
    "number div": lambda a: 2 / a,
    "clamp": lambda a: a.clamp(-1, 2),
    "clamp the wrong way round": lambda a: a.clamp(2, -1) + a,
    "clamp min": lambda a: a.clamp(min=0.5),
    "clamp_min": lambda a: torch.clamp_min(a, -0.5),
    "clamp_max": lambda a: torch.clamp_max(a, 0.5),
    "hardtanh": F.hardtanh,
    "hardtanh of other ends": lambda a: F.hardtanh(a, -0.5, 2.0),
    "relu6": F.relu6,
    "leaky_relu": lambda a: F.leaky_relu(a, 0.2),
    "elu": F.elu,
    "elu of other alpha": lambda a: F.elu(a, 1.5),
    "selu": F.selu,
    "celu": lambda a: F.celu(a, 2.0),
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda a: F.gelu(a, approximate="tanh"),
    "softplus": F.softplus,
    "softplus of other beta": lambda a: F.softplus(a, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "masked_fill": lambda a: a.masked_fill(a > 0.5, 7.0),
    "where a number": lambda a: torch.where(a >= 1, a, -1.0),
    "logical_not": lambda a: torch.logical_not(a) * a,
    "not": lambda a: (~(a > 0)).double() * a,
    "detach": lambda a: a.detach() * a,
    "zeros_like": lambda a: torch.zeros_like(a) + a,
    "ones_like": lambda a: torch.ones_like(a) * a,
    "full_like": lambda a: torch.full_like(a, 1.5) * a,
    "new_zeros": lambda a: a.new_zeros(a.shape) - a,
    "in place": lambda a: (a + 1).mul_(2).sub_(a).tanh_(),
    "relu in place": lambda a: F.relu(a * 2, inplace=True),
    "one more time": lambda a: a * a * a + a,
}
BINARY: dict[str, Function] = {
    "add": torch.add,
    "add with alpha": lambda a, b: torch.add(a, b, alpha=-2),
    "sub": torch.sub,
    "sub with alpha": lambda a, b: torch.sub(a, b, alpha=3),
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": lambda a, b: a.abs() ** b,
    "eq": lambda a, b: (a == b) * a,
    "ne": lambda a, b: (a != b) * a,
    "lt": lambda a, b: (a < b) * a,
    "le": lambda a, b: (a <= b) * b,
    "gt": lambda a, b: (a > b).to(a.dtype) * b,
    "ge": lambda a, b: (a >= b).double() * b,
    "logical_and": lambda a, b: torch.logical_and(a, b) * a,
    "logical_or": lambda a, b: torch.logical_or(a, b) * b,
    "and": lambda a, b: ((a > 0) & (b > 0)) * a,
    "or": lambda a, b: ((a > 0) | (b > 0)) * a,
    "where": lambda a, b: torch.where(a > b, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "clamp by a tensor": lambda a, b: torch.clamp(a, min=b),
    "clamp_max by a tensor": lambda a, b: torch.clamp_max(a, b),
}
TERNARY: dict[str, Function] = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c),
    "addcmul with value": lambda a, b, c: torch.addcmul(a, b, c, value=-2),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.5),
    "lerp by a tensor": lambda a, b, c: torch.lerp(a, b, c),
    "where": lambda a, b, c: torch.where(a > 0, b, c),
    "masked_fill": lambda a, b, c: (a + b).masked_fill(c > 0, 1.0),
}


class Elementwise(Cell):
    """A function of the parts of x."""

    arity = 0

    def __init__(self, function: Function, width: int) -> None:
        super().__init__()
        self.fields = {"h": width}
        self.function = function

    def forward(self, x, children):
        return {"h": self.function(*x.values())}


def compare(
    function: Function, parts: list[Tensor], backend: str, by: Function | None = None
) -> None:
    """Compares numbers and gradients, compiled and by torch or by another function.

    Programs without gradients are compared as native code.
    """
    network = Network(
        SCHEMA, (Up(), {"word": Elementwise(function, parts[0].shape[1])}), run="compiled"
    )
    builder = GraphBuilder(SCHEMA)
    builder.output(*builder.nodes("word", len(parts[0])))
    builder.finish()
    dag = builder.build()
    batch = Batch(dag, build_schedule(dag, network.passes))
    leaves = [part.clone().requires_grad_() for part in parts]
    x = {"word": dict(zip("abc", leaves, strict=False))}
    actual, want = network(batch, x)["h"], (by or function)(*leaves)
    torch.testing.assert_close(actual, want, rtol=1e-12, atol=1e-14, equal_nan=True)
    outside = torch.linspace(-1, 2, want.numel(), dtype=torch.float64).view_as(want)
    is_defined = ~want.isnan()
    for one, other in zip(
        torch.autograd.grad(actual, leaves, outside, materialize_grads=True, allow_unused=True),
        torch.autograd.grad(want, leaves, outside, materialize_grads=True, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(
            one[is_defined], other[is_defined], rtol=1e-11, atol=1e-13, equal_nan=True
        )
    if backend == "native":
        with torch.no_grad():
            again = network(batch, {"word": {name: v.detach() for name, v in x["word"].items()}})
        torch.testing.assert_close(again["h"], want, rtol=1e-12, atol=1e-14, equal_nan=True)


def numbers(count: int, special: list[float]) -> list[Tensor]:
    """Each of some numbers with each other, in rows of five."""
    grid = torch.cartesian_prod(*[torch.tensor(special, dtype=torch.float64)] * count)
    grid = grid.view(-1, count)
    missing = -len(grid) % 5
    generator = torch.Generator().manual_seed(0)
    more = torch.randn(missing + 400, count, dtype=torch.float64, generator=generator)
    return list(torch.cat([grid, more]).T.contiguous().view(count, -1, 5))


@pytest.mark.parametrize("name", UNARY)
def test_of_one_tensor(name, backend):
    compare(UNARY[name], numbers(1, [*SPECIAL, *NOT_FINITE]), backend)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_tensors(name, backend):
    compare(BINARY[name], numbers(2, [*SPECIAL, *NOT_FINITE]), backend)


@pytest.mark.parametrize("name", TERNARY)
def test_of_three_tensors(name, backend):
    compare(TERNARY[name], numbers(3, [-2.0, -0.5, 0.0, 1.0, 3.0]), backend)


CLAMPS = {
    "steep": (
        False,
        lambda a: torch.where(a < 0.5, 0.5, a),
        lambda a, b: torch.where((a < b) | b.isnan(), b, a),
    ),
    "flat": (True, lambda a: torch.where(a <= 0.5, 0.5, a), torch.maximum),
}


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("rule", CLAMPS)
def test_the_limits_of_clamp_by_the_rules_of_two_torches(rule, monkeypatch, backend):
    is_flat, by_number, by_tensor = CLAMPS[rule]
    monkeypatch.setattr(elementwise, "clamp_is_flat_at_limits", lambda: is_flat)
    special = [*SPECIAL, *NOT_FINITE]
    compare(UNARY["clamp min"], numbers(1, special), backend, by_number)
    compare(BINARY["clamp by a tensor"], numbers(2, special), backend, by_tensor)


class Stretching(Elementwise):
    """A function of the parts of x and of parameters of fewer dimensions."""

    def __init__(self, function: Function, width: int) -> None:
        super().__init__(function, width)
        self.scalar = nn.Parameter(torch.tensor(0.7))
        self.one = nn.Parameter(torch.tensor([-0.6]))
        self.vector = nn.Parameter(torch.linspace(-1, 2, 5))
        self.row = nn.Parameter(torch.linspace(2, -1, 5).view(1, 5))
        self.column = nn.Parameter(torch.linspace(-1, 1, 3).view(3, 1))

    def forward(self, x, children):
        return {"h": self.function(self, *x.values())}


STRETCHED: dict[str, Function] = {
    "a number": lambda p, a: p.scalar * a + p.scalar,
    "one": lambda p, a: a * p.one - p.one,
    "a vector": lambda p, a: p.vector * a / (p.vector + 3),
    "a row": lambda p, a: (p.row - a) * p.row,
    "computed of parameters": lambda p, a: a * torch.tanh(p.vector * p.row + p.one),
    "of both sides": lambda p, a: (a.unsqueeze(1) * p.column + p.vector).sum(1) * p.scalar,
    "a column": lambda p, a: a[:, :1] * p.vector + a,
    "where": lambda p, a: torch.where(a > p.vector, p.scalar, a),
    "maximum": lambda p, a: torch.maximum(a, p.vector),
    "clamp": lambda p, a: a.clamp(min=p.vector),
    "pow": lambda p, a: a.abs() ** p.vector,
    "pow of a parameter": lambda p, a: (p.scalar**2) ** a,
    "addcmul": lambda p, a: torch.addcmul(p.vector, a, p.row),
    "lerp": lambda p, a: torch.lerp(p.vector.expand_as(a), a, p.scalar),
    "expand": lambda p, a: p.vector.expand(len(a), 5) * a,
    "expand_as": lambda p, a: p.scalar.expand_as(a) - a,
    "the same for all": lambda p, a: torch.zeros_like(a) + p.vector,
}


@pytest.mark.on_cpu
@pytest.mark.parametrize("name", STRETCHED)
def test_parameters_are_stretched(name):
    cell = Stretching(STRETCHED[name], 5).double()
    network = Network(SCHEMA, (Up(), {"word": cell}), run="compiled").double()
    builder = GraphBuilder(SCHEMA)
    builder.output(*builder.nodes("word", 205))
    builder.finish()
    dag = builder.build()
    batch = Batch(dag, build_schedule(dag, network.passes))
    (x,) = numbers(1, [number for number in SPECIAL if abs(number) < 10])
    x = torch.cat([x, x, x])[:205].requires_grad_()
    actual, want = network(batch, {"word": {"a": x}})["h"], cell.function(cell, x)
    torch.testing.assert_close(actual, want, rtol=1e-12, atol=1e-14)
    outside = torch.linspace(-1, 2, want.numel(), dtype=torch.float64).view_as(want)
    leaves = [x, *cell.parameters()]
    grads = [
        torch.autograd.grad(values, leaves, outside, allow_unused=True, materialize_grads=True)
        for values in (actual, want)
    ]
    torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-12)
