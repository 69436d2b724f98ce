"""Both kernels give equal results, values and gradients, and the same bits every time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.batching.kernels import segment
from graphfold.batching.kernels.segment import (
    Kernel,
    expand,
    kernel_of,
    parents,
    segment_sum,
)
from graphfold.dag.typed_dag import pointers

KERNELS = ("native", "scatter")
counts = st.lists(st.integers(0, 4), min_size=0, max_size=6)


def kernel(name: str) -> Kernel:
    if name == "scatter":
        pytest.importorskip("torch_scatter", reason="torch-scatter is not installed")
    return kernel_of(name)


def problem(lengths: list[int], width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Different values, so that a maximum is reached once, with the runs and their numbers."""
    ptr = pointers(torch.tensor(lengths, dtype=torch.int64))
    count = int(ptr[-1])
    values = torch.randperm(count * width, dtype=torch.float64).view(count, width) - count
    return values.requires_grad_(), ptr, parents(ptr, len(values))


def loop(reduction: str, values: torch.Tensor, ptr: torch.Tensor) -> torch.Tensor:
    rows = []
    for begin, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        run = values[begin:end]
        empty = run.sum(0)  # zeros
        rows.append(run.amax(0) if reduction == "max" and len(run) else empty)
    return torch.stack(rows) if rows else values.sum(0, keepdim=True)[:0]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("reduction", ["sum", "max"])
@given(lengths=counts, width=st.integers(0, 3))
def test_values_and_gradients_equal_loops(name, reduction, lengths, width):
    values, ptr, parent = problem(lengths, width)
    want = loop(reduction, values, ptr)
    got = getattr(kernel(name), reduction)(values, ptr, parent)
    torch.testing.assert_close(got, want)
    weight = torch.randn_like(want)
    grads = [torch.autograd.grad((t * weight).sum(), values)[0] for t in (got, want)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("grad", [3.0, -3.0])
def test_a_shared_maximum_shares_its_gradient(name, grad):
    values = torch.tensor([[2.0], [2.0], [1.0]], requires_grad=True)
    ptr, parent = torch.tensor([0, 3, 3]), torch.tensor([0, 0, 0])
    kernel(name).max(values, ptr, parent).backward(torch.tensor([[grad], [1.0]]))
    assert values.grad.view(-1).tolist() == [grad / 2, grad / 2, 0.0]


@pytest.mark.parametrize(
    ("name", "reduction"),
    [*((name, "max") for name in KERNELS), ("native", "sum")],
)
def test_they_can_be_differentiated_twice(name, reduction):
    values, ptr, parent = problem([2, 0, 3], 2)
    reduce = getattr(kernel(name), reduction)
    assert torch.autograd.gradgradcheck(lambda v: reduce(v, ptr, parent).tanh(), [values / 20])


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["runs", "index_add"])
@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
def test_both_ways_of_the_native_sum_are_equal(small, shape, monkeypatch):
    monkeypatch.setattr(segment, "SMALL", small)
    values, ptr = torch.randn(shape, dtype=torch.float64), torch.tensor([0, 2, 2, 5])
    want = torch.stack([values[:2].sum(0), torch.zeros_like(values[0]), values[2:].sum(0)])
    torch.testing.assert_close(segment_sum(values, ptr), want)
    rows = values.reshape(5, -1).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: segment_sum(v, ptr), [rows])
    assert torch.autograd.gradgradcheck(lambda v: segment_sum(v, ptr), [rows])


@pytest.mark.parametrize("small", [0, 1 << 40], ids=["runs", "index_select"])
def test_expanding_is_the_transpose_of_the_sum(small, monkeypatch):
    monkeypatch.setattr(segment, "SMALL", small)
    values = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    ptr, parent = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 0, 2, 2, 2])
    assert torch.equal(expand(values, ptr, parent), values[parent])
    assert torch.autograd.gradcheck(lambda v: expand(v, ptr, parent), [values])
    assert torch.autograd.gradgradcheck(lambda v: expand(v, ptr, parent), [values])


@pytest.mark.gpu
def test_the_native_kernel_gives_the_same_bits_every_time_on_a_gpu():
    torch.manual_seed(0)
    lengths = torch.randint(0, 40, (500,))
    ptr = pointers(lengths).cuda()
    values = torch.randn(int(ptr[-1]), 64, device="cuda", requires_grad=True)
    kernel, parent = kernel_of("native"), parents(ptr, len(values))
    actual = []
    for _ in range(5):
        total, highest = (f(values, ptr, parent) for f in (kernel.sum, kernel.max))
        grad = torch.autograd.grad((total * highest).sum(), values)[0]
        actual.append(torch.cat([total.flatten(), highest.flatten(), grad.flatten()]))
    assert all(torch.equal(other, actual[0]) for other in actual)
