"""What kernels compute, in C here.

test_triton_source.py runs this file again, in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
import torch
from engine_cells import make_batch
from fusion_checks import WIDTH, functions, joint_of, run_graph, traced_graph
from hypothesis import given
from program_checks import assert_same, num_programs, run, with_engine
from torch import Tensor, nn

from graphfold.batching import Cell, Children, Network, Up
from graphfold.batching.engine.programs.fusion import c_source, triton_source
from graphfold.batching.engine.programs.fusion.choice import kernels_for
from graphfold.batching.engine.programs.fusion.operations import (
    EXPRESSIONS,
    FILLS,
    POWERS,
    is_computable,
)
from graphfold.batching.engine.programs.fusion.regions import Region, find_region, fuse
from graphfold.batching.engine.programs.trace import trace
from graphfold.batching.engine.programs.trial import agrees
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.dag import EdgeType, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.layers import LeafLSTMCell, NaryTreeLSTMCell, TreeFCCell, TreeRNNCell

#: What builds the kernels: a compiler, or Triton where its interpreter is asked for.
build = kernels_for(torch.device("cpu"), torch.float32).build
language = triton_source if build is triton_source.build else c_source

# The interpreter computes with NumPy, which warns where numbers overflow or are no numbers.
pytestmark = [
    pytest.mark.skipif(
        language is c_source and find_compiler() is None, reason="there is no C compiler"
    ),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning"),
]
aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)
#: A few units in the last place.
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-14}

#: Operation -> a function of a, b and c that is this operation on numbers.
OPERATIONS: Mapping[Any, Callable[..., Tensor]] = {
    aten.add: lambda a, b, c: aten.add(a, b, alpha=0.1),
    aten.sub: lambda a, b, c: aten.sub(a, b, alpha=0.1),
    aten.rsub: lambda a, b, c: aten.rsub(a, 1.1),
    aten.mul: lambda a, b, c: a * b,
    aten.div: lambda a, b, c: a / b,
    aten.neg: lambda a, b, c: -a,
    aten.abs: lambda a, b, c: a.abs(),
    aten.reciprocal: lambda a, b, c: a.reciprocal(),
    aten.exp: lambda a, b, c: a.exp(),
    aten.log: lambda a, b, c: a.log(),
    aten.sqrt: lambda a, b, c: a.sqrt(),
    aten.rsqrt: lambda a, b, c: a.rsqrt(),
    aten.sigmoid: lambda a, b, c: a.sigmoid(),
    aten.tanh: lambda a, b, c: a.tanh(),
    aten.relu: lambda a, b, c: a.relu(),
    aten.leaky_relu: lambda a, b, c: nn.functional.leaky_relu(a, 0.1),
    aten.silu: lambda a, b, c: nn.functional.silu(a),
    aten.clamp_min: lambda a, b, c: a.clamp_min(0.1),
    aten.clamp_max: lambda a, b, c: torch.clamp_max(a, 0.1),
    aten.maximum: lambda a, b, c: torch.maximum(a, b),
    aten.minimum: lambda a, b, c: torch.minimum(a, b),
    aten.addcmul: lambda a, b, c: torch.addcmul(a, b, c, value=0.1),
    aten.addcdiv: lambda a, b, c: torch.addcdiv(a, b, c, value=0.1),
    aten.lerp: lambda a, b, c: torch.lerp(a, b, 0.1),
    aten.where: lambda a, b, c: torch.where(a > 0.1, b, c),
    aten.eq: lambda a, b, c: torch.where(a == a.abs(), b, c),
    aten.ne: lambda a, b, c: torch.where(a != 1.0, b, c),
    aten.lt: lambda a, b, c: torch.where(a < b, b, c),
    aten.le: lambda a, b, c: torch.where(a <= b, b, c),
    aten.gt: lambda a, b, c: torch.where(a > 0, b, float("inf")),
    aten.ge: lambda a, b, c: a >= b,
    aten.logical_and: lambda a, b, c: torch.logical_and(a > b, c),
    aten.logical_or: lambda a, b, c: torch.logical_or(a > b, b > c),
    aten.logical_not: lambda a, b, c: torch.logical_not(a > b),
    aten.sigmoid_backward: lambda a, b, c: aten.sigmoid_backward(a, b.sigmoid()),
    aten.tanh_backward: lambda a, b, c: aten.tanh_backward(a, b.tanh()),
    aten.threshold_backward: lambda a, b, c: aten.threshold_backward(a, b, 0.1),
    aten.leaky_relu_backward: lambda a, b, c: aten.leaky_relu_backward(a, b, 0.1, False),
    aten.silu_backward: lambda a, b, c: aten.silu_backward(a, b),
    aten.clone: lambda a, b, c: a.clone(),
    aten._to_copy: lambda a, b, c: a.to(torch.float64) / b.to(torch.float32),
    aten.zeros_like: lambda a, b, c: torch.zeros_like(a) - b,
    aten.ones_like: lambda a, b, c: torch.ones_like(a) - b,
    aten.full_like: lambda a, b, c: torch.full_like(a, 0.1) - b,
}
#: What an operation is given besides everyday numbers.
EXTREMES = (0.0, -0.0, 1e-30, -1e-30, 0.6249, 0.6251, 30.0, -800.0, 1e30, -1e30)
NO_NUMBERS = (float("inf"), -float("inf"), float("nan"))


def kernel_of(function: Callable[..., Any], *examples: Tensor) -> Callable[..., Any]:
    """All operations of a function in one kernel, even where they are just one."""
    graph = traced_graph(function, *examples)
    seed = next(node for node in graph.nodes if is_computable(node))
    region = find_region(graph, seed)
    order = [node for node in graph.nodes if node.op == "placeholder"]
    launch = build(region)
    (result,) = (node for node in graph.nodes if node.op == "output")
    places = [region.outputs.index(node) for node in result.args[0]]

    def run_kernel(*tensors: Tensor, **given: Tensor) -> list[Tensor]:
        by_node = dict(zip(order, tensors, strict=True))
        found = launch(*(by_node[node] for node in region.inputs), **given)
        return [found[place] for place in places]

    return run_kernel


def numbers(dtype: torch.dtype, seed: int, extremes: tuple[float, ...] = ()) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(7, 2 * WIDTH, dtype=torch.float64, generator=generator)
    pairs = list(product(extremes, repeat=2))
    column = torch.tensor([pair[seed % 2] for pair in pairs] or [1.0], dtype=torch.float64)
    return torch.cat([found.flatten(), column]).to(dtype).unsqueeze(1).repeat(1, 2)


def same(one: Tensor, other: Tensor, rounding: float) -> None:
    torch.testing.assert_close(one, other, rtol=rounding, atol=rounding, equal_nan=True)


def test_every_operation_is_checked():
    assert set(OPERATIONS) == {*EXPRESSIONS, *FILLS}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(map(str, OPERATIONS)))
def test_operation(name, dtype):
    function = {str(key): value for key, value in OPERATIONS.items()}[name]
    examples = [torch.rand(7, 2, dtype=dtype) for _ in range(3)]
    graph = traced_graph(function, *examples)
    targets = [str(n.target.overloadpacket) for n in graph.nodes if n.op == "call_function"]
    assert name in targets
    kernel = kernel_of(function, *examples)
    for extremes in ((), EXTREMES, (*NO_NUMBERS, 0.0, 2.0)):
        a, b, c = (numbers(dtype, seed, extremes) for seed in range(3))
        (found,) = kernel(a, b, c)
        want = function(a, b, c)
        assert found.dtype == want.dtype
        same(found, want, ROUNDING[dtype])


@pytest.mark.parametrize("exponent", POWERS)
def test_power(exponent):
    x = torch.rand(7, 3, dtype=torch.float64)
    (found,) = kernel_of(lambda x: x**exponent, x)(x)
    same(found, x**exponent, 1e-14)


def test_clamp_of_one_end():
    x = torch.randn(7, 6)
    for bounds in ({"min": 0.1}, {"max": 0.1}):
        (found,) = kernel_of(lambda x, b=bounds: x.clamp(**b), x)(x)
        same(found, x.clamp(**bounds), 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tanh_is_exact_to_a_few_places(dtype):
    size = torch.logspace(-30, 3, 4001, dtype=torch.float64)
    x = torch.cat([size, -size]).to(dtype).view(-1, 1).repeat(1, 2)
    (found,) = kernel_of(torch.tanh, torch.rand(7, 2, dtype=dtype))(x)
    want = torch.tanh(x.double())
    error = ((found.double() - want) / want).abs().max()
    assert error < 4 * torch.finfo(dtype).eps


# --- Where numbers lie


@pytest.mark.parametrize(("num_rows", "width"), [(0, 5), (1, 5), (1, 256), (7, 37), (600, 3)])
def test_any_size(num_rows, width):
    kernel = kernel_of(lambda x, y: torch.tanh(x) * y, torch.rand(7, width), torch.rand(7, width))
    x, y = torch.randn(num_rows, width), torch.randn(num_rows, width)
    (found,) = kernel(x, y)
    assert found.shape == (num_rows, width)
    same(found, torch.tanh(x) * y, 1e-6)


def test_any_strides():
    kernel = kernel_of(lambda x, y: torch.tanh(x) * y, torch.rand(7, 6), torch.rand(7, 6))
    wide = torch.randn(9, 30)
    for x in (wide[:, 3:9], wide[:, ::5], wide.t()[:9, :6], wide[:1, :6].expand(9, 6)):
        for y in (torch.randn(6, len(x)).t(), torch.randn(()).expand(len(x), 6)):
            (found,) = kernel(x, y)
            same(found, torch.tanh(x) * y, 1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (6,), (1, 6), (2, 6), (1, 2, 6), (7, 1, 6)])
def test_whatever_is_stretched(shape):
    x, y = torch.randn(7, 2, 6), torch.randn(shape)
    (found,) = kernel_of(lambda x, y: torch.tanh(x) * y, x, y)(x, y)
    same(found, torch.tanh(x) * y, 1e-6)


def test_outputs_are_written_to_their_places():
    def function(x: Tensor) -> list[Tensor]:
        return [torch.tanh(x), torch.tanh(x) * 2, x > 0]

    x, buffer = torch.randn(7, 6), torch.zeros(20, 6)
    found = kernel_of(function, x)(x, out_1=buffer[5:12])
    for one, other in zip(found, function(x), strict=True):
        same(one, other, 1e-6)
    assert found[1].data_ptr() == buffer[5:].data_ptr()
    assert not buffer[:5].any()
    assert not buffer[12:].any()


def test_numbers_in_the_code_are_as_exact_as_the_tensors():
    x = torch.randn(7, 6, dtype=torch.float64)

    def function(x: Tensor) -> list[Tensor]:
        return [x * 0.1 + 1e-9, torch.where(x > 0.3, 0.7, x), 1 / (x * x + 1e-300)]

    for one, other in zip(kernel_of(function, x)(x), function(x), strict=True):
        same(one, other, 1e-15)


@given(functions())
def test_any_graph(function):
    x, weight = torch.rand(7, 2 * WIDTH, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    graph = traced_graph(function, x, weight)
    fuse(graph, build)
    for one, other in zip(run_graph(graph, x, weight), function(x, weight), strict=True):
        same(one, other, 1e-13)


# --- Whole cells and networks


def trees(arity: int) -> TypedDAG:
    """Two trees of nodes of some arity, and a leaf alone."""
    schema = Schema((NodeType("leaf", 0), NodeType("node", arity)), EdgeType("inputs"))
    builder = GraphBuilder(schema)
    for size in (9, 4, 1):
        below = [builder.node("leaf") for _ in range(size)]
        while len(below) > 1:
            node = builder.node("node")
            children = [*below[:arity], *[None] * arity][:arity]
            builder.inputs(node, children)
            below = [*below[max(arity, 2) :], node]
        builder.output(below[0])
        builder.finish()
    return builder.build()


class LSTMCell(Cell):
    """An LSTM as torch has it, on chains."""

    arity = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size, "c": hidden_size}
        self.lstm = nn.LSTMCell(input_size, hidden_size)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h, c = self.lstm(x, (children.stack("h")[:, 0], children.stack("c")[:, 0]))
        return {"h": h, "c": c}


class GRUCell(Cell):
    """A gated unit over two children, as it is written by hand."""

    arity = 2

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fields = {"h": hidden_size, "c": hidden_size}
        self.gates = nn.Linear(2 * hidden_size + input_size, 3 * hidden_size)

    def forward(self, x: Tensor, children: Children) -> dict[str, Tensor]:
        h = children.stack("h")
        gates = self.gates(torch.cat([h.flatten(1), x], 1))
        z, r, u = gates.chunk(3, 1)
        z, u = torch.sigmoid(z), torch.tanh(u * torch.sigmoid(r))
        new = z * h.mean(1) + (1 - z) * u
        return {"h": new, "c": torch.where(new > 0, new, children.stack("c").amax(1))}


CELLS: Mapping[str, Callable[[], Cell]] = {
    "leaf": lambda: LeafLSTMCell(WIDTH, WIDTH),
    "binary Tree-LSTM": lambda: NaryTreeLSTMCell(WIDTH, WIDTH),
    "Tree-LSTM of one": lambda: NaryTreeLSTMCell(WIDTH, WIDTH, arity=1),
    "Tree-LSTM of three": lambda: NaryTreeLSTMCell(WIDTH, WIDTH, arity=3),
    "Tree-LSTM with dropout": lambda: NaryTreeLSTMCell(WIDTH, WIDTH, dropout=0.5),
    "Tree-RNN": lambda: TreeRNNCell(WIDTH, WIDTH, dropout=0.5),
    "Tree-FC": lambda: TreeFCCell(WIDTH, activation="tanh"),
    "LSTM": lambda: LSTMCell(WIDTH, WIDTH),
    "GRU": lambda: GRUCell(WIDTH, WIDTH),
}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are built during a test."""
    sources: list[str] = []
    write = language.write

    def write_and_note(region: Region) -> Any:
        source = write(region)
        sources.append(str(source))
        return source

    monkeypatch.setattr(language, "write", write_and_note)
    return sources


@pytest.mark.parametrize("name", CELLS)
def test_cell(name, built):
    joint = joint_of(CELLS[name](), has_x=name != "Tree-FC")
    program = trace(joint, fuse=True)
    assert agrees(joint, program, lambda a, b: torch.allclose(a, b, rtol=1e-12, atol=1e-12))
    if name != "Tree-FC" or language is triton_source:  # all of it is products and one operation
        assert built


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", [name for name in CELLS if name != "leaf"])
def test_network(name, recompute, built):
    cell = CELLS[name]()
    dag = trees(cell.arity or 0)
    cells = {"leaf": LeafLSTMCell(WIDTH, WIDTH), "node": cell}
    network = Network(dag.schema, [Up()], [cells], trace_after=0, recompute=recompute, fuse=True)
    network.double().eval()
    x = inputs(dag)
    wanted = run(with_engine(network, "reference"), dag, x)
    for _ in range(2):  # the second time by programs
        assert_same(run(network, dag, x), wanted, 1e-9)
    assert num_programs(cell) == 1
    assert built
    for field in ("h", "c"):  # what the loss does not read has no gradient

        def loss(states: Mapping[str, Tensor], field: str = field) -> Tensor:
            return states[field].square().sum()

        wanted = run(with_engine(network, "reference"), dag, x, loss)
        assert_same(run(network, dag, x, loss), wanted, 1e-9)


def inputs(dag: TypedDAG) -> dict[str, Tensor]:
    counts = zip(dag.schema.types, dag.num_nodes_by_type, strict=True)
    return {
        node_type.name: torch.randn(count, WIDTH, dtype=torch.float64).requires_grad_()
        for node_type, count in counts
    }


def test_evaluation_and_single_precision(built):
    dag = trees(2)
    cells = {"leaf": LeafLSTMCell(WIDTH, WIDTH), "node": NaryTreeLSTMCell(WIDTH, WIDTH)}
    network = Network(dag.schema, [Up()], [cells], trace_after=0, fuse=True)
    x = {name: tensor.detach().float() for name, tensor in inputs(dag).items()}
    batch = make_batch(dag, network)
    wanted = with_engine(network)(batch, x)
    with torch.inference_mode():
        for _ in range(2):
            found = network(batch, x)
            assert_same({n: found[n] for n in "hc"}, {n: wanted[n] for n in "hc"}, 1e-6)
    assert not any("float64" in source or "double" in source for source in built)
