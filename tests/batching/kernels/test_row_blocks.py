"""Products of many rows are cut in two, if a command says so, and are the products."""

from __future__ import annotations

import pytest
import torch
from engine_cells import (
    make_batch,
    make_network,
    make_x,
    message_cells,
    random_dag,
    rounds,
    tree_cells,
)
from torch import nn
from torch.autograd import grad
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from graphfold.batching import Up
from graphfold.batching.kernels import row_blocks as row_blocks_of_graphfold
from graphfold.batching.kernels.fast_kernels import FastKernels
from graphfold.batching.kernels.onednn import choose_onednn, product_kernel
from graphfold.batching.kernels.row_blocks import addmm, linear, mm, rows_mm
from graphfold.training.products import products_in_use, use_products


@pytest.fixture(autouse=True)
def chosen():
    choose_onednn(True)
    yield
    choose_onednn(False)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("has_place", [False, True])
def test_products_in_blocks_are_the_products(rows, has_place):
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(s, generator=draw) for s in ((rows, 5), (5, 3), (3,)))
    x, weight, bias = x.double(), weight.double(), bias.double()
    for got, want in (
        (lambda out: addmm(bias, x, weight, out=out), bias + x @ weight),
        (lambda out: mm(x, weight, out=out), x @ weight),
    ):
        place = torch.full((rows, 3), torch.nan, dtype=torch.float64) if has_place else None
        torch.testing.assert_close(got(place), want)
        if place is not None:
            torch.testing.assert_close(place, want)
    torch.testing.assert_close(rows_mm(x, x[:, :2]), x.T @ x[:, :2])


@pytest.fixture(params=["default", "onednn"])
def kernel(request):
    before = products_in_use()
    use_products(request.param)
    with product_kernel(torch.device("cpu")) as kernel:
        yield kernel
    use_products(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "rows"), [(1, 1), (1, 5), (2, 2), (3, 3), (8, 8), (70, 70)])
def test_products_have_the_same_bits_wherever_they_lie(nodes, rows, dtype, kernel):
    kernel.choose(nodes)
    for k, m in ((512, 256), (300, 750), (150, 5)):
        x, weight = torch.randn(rows, k, dtype=dtype), torch.randn(k, m, dtype=dtype)
        bias = torch.randn(m, dtype=dtype)
        for shift in (0, 1, 2, 6, 22):
            place = torch.empty(rows * m + shift, dtype=dtype)[shift:].view(rows, m)
            assert torch.equal(mm(x, weight, out=place), mm(x, weight))
            assert torch.equal(addmm(bias, x, weight, out=place), addmm(bias, x, weight))


class Shapes(TorchFunctionMode):
    """Notes the rows of every product."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.mm, torch.addmm):
            self.rows.append(args[-2].shape[0])
        return func(*args, **(kwargs or {}))


def test_many_rows_are_cut_where_shapes_come_again():
    weight = torch.randn(5, 3)
    with Shapes() as seen:
        for rows in range(64, 1024):
            mm(torch.randn(rows, 5), weight)
    assert len(set(seen.rows)) == 63 + 15  # the rests, and the multiples of 64
    choose_onednn(False)
    with Shapes() as seen:
        mm(torch.randn(100, 5), weight)
    assert seen.rows == [100]


def numbers(*shapes, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    made = (torch.randn(shape, generator=draw).to(dtype) for shape in shapes)
    return [tensor.requires_grad_() for tensor in made]


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_linear_layer_in_blocks_is_one_twice_differentiated_too(rows, has_bias):
    x, weight, bias, wanted = numbers((rows, 5), (3, 5), (3,), (rows, 3))
    parts = [x, weight, bias] if has_bias else [x, weight]

    def derivatives(layer):
        output = layer(*parts)
        first = grad((output.tanh() * wanted).sum(), parts, create_graph=True)
        second = grad(sum(part.pow(2).sum() for part in first), [*parts, wanted])
        return [output, *first, *second]

    for got, want in zip(derivatives(linear), derivatives(F.linear), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_gradients_that_nobody_asks_for_are_not_computed():
    x, weight, bias = numbers((100, 5), (3, 5), (3,))
    linear(x, weight, bias, only_x=True).sum().backward()
    torch.testing.assert_close(x.grad, weight.detach().sum(0).expand(100, 5))
    assert weight.grad is None
    assert bias.grad is None


def is_in_blocks(output):
    return "_Linear" in type(output.grad_fn).__name__


def test_layers_multiply_in_blocks_where_it_is_said():
    layer, x = nn.Linear(5, 3), torch.randn(100, 5)
    assert not is_in_blocks(layer(x))
    with FastKernels():
        assert is_in_blocks(layer(x))
        assert not is_in_blocks(layer(x[:64]))
        assert not is_in_blocks(layer(x.expand(2, 100, 5)))
        assert not is_in_blocks(layer.double()(x.double()))
        layer.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert torch.func.vmap(layer)(x.expand(100, 100, 5)).shape == (100, 100, 3)
    choose_onednn(False)
    with FastKernels():
        assert not is_in_blocks(layer(x))


def test_a_kind_of_tensor_that_multiplies_itself_does():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "own"

    with FastKernels():
        assert F.linear(torch.randn(100, 5).as_subclass(Own), torch.randn(3, 5)) == "own"


@pytest.fixture
def rows_of_blocks(monkeypatch):
    """The rows of every linear layer that multiplied in blocks."""
    seen, forward = [], row_blocks_of_graphfold._Linear.forward

    def noting(ctx, x, *rest):
        seen.append(len(x))
        return forward(ctx, x, *rest)

    monkeypatch.setattr(row_blocks_of_graphfold._Linear, "forward", staticmethod(noting))
    return seen


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("engine", ["fast", "autograd"])
def test_a_network_gives_the_same_in_blocks(engine, recompute, rows_of_blocks):
    dag = random_dag(200, 0)

    def derivatives(is_chosen):
        choose_onednn(is_chosen)
        torch.manual_seed(0)
        cells = [tree_cells(), message_cells()]
        network = make_network(
            [Up(), rounds(2)], cells, engine, recompute=recompute, trace_after=None
        ).float()
        x = {name: value.detach().float().requires_grad_() for name, value in make_x(dag).items()}
        states = network(make_batch(dag, network), x)
        loss = sum(states[name].pow(2).sum() for name in ("h", "c", "m"))
        wanted = [*network.parameters(), *x.values()]
        return [loss, *grad(loss, wanted, allow_unused=True)]

    in_blocks = derivatives(True)
    assert len(rows_of_blocks) >= 4
    whole = derivatives(False)
    for got, want in zip(in_blocks, whole, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
