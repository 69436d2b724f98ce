"""Dropout of states: scaled masks in training, nothing in evaluation."""

from __future__ import annotations

import pytest
import torch

from graphfold.layers import LeafLSTMCell
from graphfold.layers.dropout import Dropout, drop


def test_dropout_scales_what_it_keeps_and_is_off_in_evaluation():
    cell = LeafLSTMCell(3, 1000, dropout=0.25)
    x = torch.randn(50, 3)
    mask = cell.before(x)["mask"]
    torch.testing.assert_close(mask.unique(), torch.tensor([0.0, 4 / 3]))
    assert mask.mean() == pytest.approx(1, abs=0.02)
    assert "mask" not in cell.eval().before(x)


def of_groups(x, p, training=True):
    return drop(x, p, training)


def of_vectors(x, p, training=True):
    return Dropout(p).train(training)(x)


@pytest.mark.parametrize("dropout", [of_groups, of_vectors])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_share_is_dropped_and_the_rest_scaled(dropout, dtype):
    torch.manual_seed(0)
    x = torch.full((300, 200), 3.0, dtype=dtype, requires_grad=True)
    dropped = dropout(x, 0.7)
    kept = torch.tensor(1 / (1 - 0.7), dtype=dtype)
    assert dropped.dtype == dtype
    assert (dropped.detach() != 0).double().mean() == pytest.approx(0.3, abs=0.01)
    torch.testing.assert_close(dropped.unique(), torch.stack([torch.zeros_like(kept), 3 * kept]))
    (grad,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(grad * 3, dropped)
    assert torch.equal(dropout(x, 0.7, training=False), x)
    assert torch.equal(dropout(x, 0.0), x)


def test_entries_are_dropped_independently():
    torch.manual_seed(0)
    kept = (Dropout(0.3)(torch.ones(50_000, 8)) != 0).double()  # four entries share what is drawn
    error = 4 * (0.3 * 0.7 / len(kept)) ** 0.5
    torch.testing.assert_close(kept.mean(0), torch.full((8,), 0.7).double(), rtol=0, atol=error)
    torch.testing.assert_close(kept.T.corrcoef(), torch.eye(8).double(), rtol=0, atol=0.02)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 0), (2, 3, 5)])
def test_dropout_takes_any_shape(shape):
    dropped = Dropout(0.5)(torch.ones(shape))
    assert dropped.shape == shape
    assert set(dropped.unique().tolist()) <= {0.0, 2.0}
