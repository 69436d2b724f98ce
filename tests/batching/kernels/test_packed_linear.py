"""Linear layers by packed products, against those of torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.nn import functional as F

from graphfold.batching.kernels import packed_linear, row_blocks
from graphfold.batching.kernels.c_compiler import find_compiler
from graphfold.batching.kernels.fast_kernels import FastKernels
from graphfold.batching.kernels.products import are_quick

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
sizes = st.integers(1, 70)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(rows=st.integers(0, 70), width=sizes, out=sizes, has_bias=st.booleans())
def test_any_shape(dtype, rows, width, out, has_bias):
    x = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(out, width, dtype=dtype, requires_grad=True)
    bias = torch.randn(out, dtype=dtype, requires_grad=True) if has_bias else None
    given = [x, weight] if bias is None else [x, weight, bias]
    want, found = F.linear(x, weight, bias), packed_linear.linear(x, weight, bias)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    outside = torch.randn_like(want)
    for one, other in zip(grad(found, given, outside), grad(want, given, outside), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_each_gradient_alone(wanted):
    tensors = {"x": torch.randn(5, 4), "weight": torch.randn(3, 4), "bias": torch.randn(3)}
    tensors[wanted].requires_grad_()
    total, other = (
        packed_linear.linear(**tensors),
        F.linear(tensors["x"], *list(tensors.values())[1:]),
    )
    outside = torch.randn(5, 3)
    torch.testing.assert_close(
        grad(total, tensors[wanted], outside), grad(other, tensors[wanted], outside)
    )


def test_it_can_be_differentiated_twice():
    shapes = ((5, 4), (3, 4), (3,))
    given = tuple(torch.randn(shape).double().requires_grad_() for shape in shapes)
    assert gradcheck(packed_linear.linear, given)
    assert gradgradcheck(packed_linear.linear, given)


def test_what_it_does_not_know_goes_to_torch(monkeypatch):
    asked = []

    def ask(*given):
        asked.append(given)
        return F.linear(*given)

    monkeypatch.setattr(row_blocks, "linear", ask)
    weight = torch.randn(3, 4)
    packed_linear.linear(torch.randn(2, 2, 4), weight)
    packed_linear.linear(torch.randn(2, 4).bfloat16(), weight.bfloat16())
    with torch.autocast("cpu"):
        packed_linear.linear(torch.randn(2, 4), weight)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        packed_linear.linear(torch.randn(2, 5), weight)
    with pytest.raises(RuntimeError):
        packed_linear.linear(torch.randn(2, 4), weight, torch.randn(2))
    assert len(asked) == 5
    packed_linear.linear(torch.randn(2, 4), torch.nn.Parameter(weight))
    assert len(asked) == (5 if are_quick(torch.float32) else 6)


def test_compiled_kernels_are_for_those_who_ask(monkeypatch):
    asked = []
    monkeypatch.setitem(
        FastKernels(compiled=True)._faster, F.linear, lambda *given: asked.append(given)
    )
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    with FastKernels():
        assert layer(x) is not None
    assert not asked
    with FastKernels(compiled=True):
        layer(x)
    assert len(asked) == 1
