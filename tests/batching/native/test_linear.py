"""Linear layers by native products, against torch's linear layers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.nn import functional as F

from graphfold.batching.native import linear as module
from graphfold.batching.native.library import REALS, why_missing
from graphfold.batching.native.linear import NativeLinear, linear

pytestmark = pytest.mark.skipif(
    why_missing(torch.float32) is not None, reason="there is no native library"
)
sizes = st.integers(1, 70)


@pytest.fixture(scope="module", autouse=True)
def _few_rows_are_enough():
    """Small layers, too, are computed by native products here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_ROWS", 0)
        patch.setattr(module, "FEW_COLUMNS", 1)
        yield


@pytest.mark.parametrize("dtype", REALS)
@given(rows=st.integers(0, 70), width=sizes, out=sizes, has_bias=st.booleans())
def test_any_shape(dtype, rows, width, out, has_bias):
    x = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(out, width, dtype=dtype, requires_grad=True)
    bias = torch.randn(out, dtype=dtype, requires_grad=True) if has_bias else None
    given = [x, weight] if bias is None else [x, weight, bias]
    want, actual = F.linear(x, weight, bias), linear(x, weight, bias)
    torch.testing.assert_close(actual, want, rtol=1e-4, atol=1e-4)
    outside = torch.randn_like(want)
    for one, other in zip(grad(actual, given, outside), grad(want, given, outside), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_each_gradient_alone(wanted):
    tensors = {"x": torch.randn(5, 4), "weight": torch.randn(3, 4), "bias": torch.randn(3)}
    tensors[wanted].requires_grad_()
    actual, want = linear(*tensors.values()), F.linear(*tensors.values())
    outside = torch.randn(5, 3)
    torch.testing.assert_close(
        grad(actual, tensors[wanted], outside), grad(want, tensors[wanted], outside)
    )


def test_rows_that_lie_otherwise():
    x, weight, bias = torch.randn(40, 30), torch.randn(20, 30), torch.randn(40)[::2]
    for rows in (x.T[:20, :30].T, x[:, :20], x[::3, 5:25], x[:1, :20].expand(7, 20)):
        rows, turned = rows.detach().requires_grad_(), weight[:, : rows.shape[1]]
        actual, want = linear(rows, turned, bias), F.linear(rows, turned, bias)
        torch.testing.assert_close(actual, want, rtol=1e-4, atol=1e-4)
        outside = torch.ones(()).expand_as(want)
        torch.testing.assert_close(grad(actual, rows, outside), grad(want, rows, outside))


def test_it_can_be_differentiated_twice():
    shapes = ((5, 4), (3, 4), (3,))
    given = tuple(torch.randn(shape).double().requires_grad_() for shape in shapes)
    assert gradcheck(linear, given)
    assert gradgradcheck(linear, given)


def test_unsupported_inputs_go_to_torch(monkeypatch):
    monkeypatch.setattr(module, "multiply", None)
    weight = torch.randn(3, 4)
    linear(torch.randn(2, 2, 4), weight)
    linear(torch.randn(2, 4).bfloat16(), weight.bfloat16())
    linear(torch.randn(0, 4), weight)
    with torch.autocast("cpu"):
        linear(torch.randn(2, 4), weight)
    torch.func.vmap(lambda x: linear(x, weight))(torch.randn(5, 2, 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(torch.randn(2, 5), weight)
    with pytest.raises(RuntimeError):
        linear(torch.randn(2, 4), weight, torch.randn(2))
    with pytest.raises(TypeError, match="not callable"):
        linear(torch.randn(2, 4), weight)


@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (32, 40), (100, 15)])
def test_small_products_go_to_torch(monkeypatch, rows, columns):
    monkeypatch.setattr(module, "FEW_ROWS", 32)
    monkeypatch.setattr(module, "FEW_COLUMNS", 16)
    monkeypatch.setattr(module, "multiply", None)
    x, weight = torch.randn(rows, 4), torch.randn(columns, 4)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    with pytest.raises(TypeError, match="not callable"):
        linear(torch.randn(33, 4), torch.randn(16, 4))


def test_native_products_are_for_those_who_ask(monkeypatch):
    asked = []

    def ask(*given):
        asked.append(given)
        return linear(*given)

    monkeypatch.setattr(module, "linear", ask)
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    want = layer(x)
    assert not asked
    with NativeLinear():
        torch.testing.assert_close(layer(x), want)
        torch.relu(x)
    assert len(asked) == 1


@pytest.mark.parametrize("changed", ["x", "weight"])
def test_a_change_in_place_before_backward_is_an_error(changed):
    tensors = {"x": torch.randn(5, 4), "weight": torch.randn(3, 4)}
    for tensor in tensors.values():
        tensor.requires_grad_()
    total = linear(input=tensors["x"], weight=tensors["weight"]).sum()
    with torch.no_grad():
        tensors[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
