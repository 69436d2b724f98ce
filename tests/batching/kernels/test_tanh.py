"""tanh by NumPy is that of torch, but for the last digit."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import grad

from graphfold.batching.kernels import tanh as tanh_module
from graphfold.batching.kernels.tanh import FEW_NUMBERS, tanh

EXTREME = [0.0, -0.0, 1e-38, -1e-30, 1e-4, 0.5, -3.0, 8.9, 9.1, 100.0, -1e30]
LAST_PLACE = torch.finfo(torch.float32).eps


def numbers(count: int = 4 * FEW_NUMBERS) -> torch.Tensor:
    scale = torch.logspace(-8, 2, count)
    return torch.cat([torch.tensor(EXTREME), torch.randn(count) * scale])


def test_it_is_right_to_the_last_place():
    x = numbers()
    got, want = tanh(x).double(), x.double().tanh()
    assert bool(((got - want).abs() <= LAST_PLACE * want.abs()).all())
    special = torch.tensor([torch.inf, -torch.inf, torch.nan]).repeat(FEW_NUMBERS)
    torch.testing.assert_close(tanh(special), special.tanh(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("count", [0, 1, FEW_NUMBERS - 1, FEW_NUMBERS])
def test_it_writes_into_a_place(count):
    x, place = numbers()[:count], torch.full((count, 3), torch.nan)
    assert tanh(x, out=place[:, 1]).data_ptr() == place[:, 1].data_ptr()
    torch.testing.assert_close(place[:, 1], tanh(x), rtol=0, atol=0)
    assert place[:, ::2].isnan().all()


def test_columns_of_a_matrix_are_read_where_they_lie():
    x = torch.randn(FEW_NUMBERS, 6)
    torch.testing.assert_close(tanh(x[:, 2:4]), tanh(x)[:, 2:4], rtol=0, atol=0)
    assert not x.isnan().any()


def test_it_is_differentiated_twice():
    x, wanted = numbers().requires_grad_(), torch.randn(len(numbers()))

    def derivatives(function):
        first = grad((function(x) * wanted).sum(), x, create_graph=True)[0]
        return first, grad(first.pow(2).sum(), x)[0]

    for got, want in zip(derivatives(tanh), derivatives(torch.tanh), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_parameter_may_be_read_where_nobody_asks_for_its_gradient():
    x = numbers().requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(tanh(x), x.tanh())


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(FEW_NUMBERS - 1),
        torch.randn(4 * FEW_NUMBERS, dtype=torch.float64),
        torch.randn(4 * FEW_NUMBERS, dtype=torch.bfloat16),
        torch.nn.Parameter(torch.randn(4 * FEW_NUMBERS)),
        torch.randn(4 * FEW_NUMBERS, device="meta"),
    ],
    ids=["few", "float64", "bfloat16", "parameter", "meta"],
)
def test_what_is_not_plain_numbers_is_left_to_torch(x, numpys):
    got = tanh(x)
    assert got.device == x.device
    if x.device.type == "cpu":
        assert torch.equal(got, torch.tanh(x))
    torch.func.vmap(tanh)(torch.randn(4, FEW_NUMBERS))
    assert not numpys


def test_without_vector_code_it_is_torchs(numpys, monkeypatch):
    x = numbers()
    monkeypatch.setattr(tanh_module, "_HAS_VECTORS", True)
    tanh(x)
    assert len(numpys) == 1
    monkeypatch.setattr(tanh_module, "_HAS_VECTORS", False)
    assert torch.equal(tanh(x), torch.tanh(x))
    assert len(numpys) == 1
