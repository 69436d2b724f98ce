"""Means and deviations of targets."""

from __future__ import annotations

import pytest
import torch
from sklearn.preprocessing import StandardScaler

from graphfold.datasets.features.scalers import fit_scaler


def test_equals_scikit_learn():
    values = torch.randn(100, generator=torch.Generator().manual_seed(0)) * 5 + 3
    scaler = fit_scaler(values)
    reference = StandardScaler().fit(values.double().numpy()[:, None])
    assert scaler.mean == pytest.approx(reference.mean_[0])
    assert scaler.std == pytest.approx(reference.scale_[0])
    assert scaler.scale(values).std(correction=0).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([0.1] * 7, 0.1), ([1e6] * 3, 1e6), ([float("nan")], 0.0), ([], 0.0), ([4.0], 4.0)],
)
def test_values_that_do_not_vary_keep_their_scale(values, mean):
    scaler = fit_scaler(torch.tensor(values))
    assert scaler.std == 1.0
    assert scaler.mean == pytest.approx(mean)


def test_range_is_that_of_measured_values():
    scaler = fit_scaler(torch.tensor([1.0, float("nan"), -3.0, 2.0]))
    assert (scaler.least, scaler.most) == (-3.0, 2.0)
    empty = fit_scaler(torch.tensor([float("nan")]))
    assert empty.least == empty.most
