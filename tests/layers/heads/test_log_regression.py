"""LogRegressionHead: errors are ratios."""

import math

import pytest
import torch

from graphfold.dag import Column, NodeType, Schema
from graphfold.dag.schema import ABOVE
from graphfold.datasets.features.scalers import fit_scaler
from graphfold.errors import DataError
from graphfold.layers import LogRegressionHead
from graphfold.metrics.regression import q_error, q_error_90, q_error_95

SCHEMA = Schema(types=(NodeType("leaf", 0),), graph_targets=(Column("cost"),))
COSTS = torch.tensor([[1.0], [10.0], [1000.0], [float("nan")]])


def head() -> LogRegressionHead:
    return LogRegressionHead(4, SCHEMA, scalers={"cost": fit_scaler(COSTS)})


def test_the_loss_is_the_absolute_error_of_standardised_logarithms() -> None:
    torch.manual_seed(0)
    own = head()
    raw = torch.randn(4, 1, requires_grad=True)
    losses = own.losses(raw, COSTS)
    logs = COSTS[:3, 0].log()
    wanted = (logs - logs.mean()) / logs.std(correction=0)
    assert losses[:3].tolist() == pytest.approx((raw[:3, 0] - wanted).abs().tolist(), rel=1e-5)
    assert losses[3:].tolist() == [0]  # missing
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert raw.grad is not None
    assert raw.grad[3:].tolist() == [[0]]
    for wrong in (0.0, -3.5):
        with pytest.raises(DataError, match=f"a target of cost is {wrong:g}, but LogRegression"):
            own.losses(raw, torch.tensor([[1.0], [wrong], [2.0], [3.0]]))


def test_a_prediction_has_the_units_of_the_target() -> None:
    own = head()
    wanted = own.standardise(COSTS[:3])
    assert own.decode(wanted)[:, 0].tolist() == pytest.approx([1, 10, 1000], rel=1e-5)
    assert (own.decode(torch.randn(9, 1)) > 0).all()


def test_bounds_are_bounds_of_the_logarithm() -> None:
    own = head()
    raw = own.standardise(torch.tensor([[100.0], [100.0]]))
    targets = torch.tensor([[[10.0, ABOVE]], [[1000.0, ABOVE]]])
    beyond, short = own.losses(raw, targets).tolist()
    assert beyond == 0
    assert short == pytest.approx(math.log(10) / float(own.std), rel=1e-5)


def test_q_errors_are_percentiles_of_the_ratio() -> None:
    true = torch.full((101,), 8.0)
    ratio = torch.linspace(1, 3, 101)
    guessed = torch.where(torch.arange(101) % 2 == 0, true * ratio, true / ratio)
    for metric, wanted in ((q_error, 2.0), (q_error_90, 2.8), (q_error_95, 2.9)):
        assert metric(guessed, true) == pytest.approx(wanted, rel=1e-5)
        assert metric(guessed - 9, true) is None  # not all above zero
