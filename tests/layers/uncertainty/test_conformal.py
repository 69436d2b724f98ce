"""Conformal quantiles and intervals, against their formulas and by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import (
    MeanVarianceHead,
    QuantileHead,
    RegressionHead,
    RelatednessHead,
)
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.ensemble import mixture
from graphfold.layers.uncertainty.intervals import Intervals, conformal_quantile, least_records
from graphfold.metrics import find_metric

NAN = float("nan")
SCHEMA = Schema(types=(NodeType("atom", 0),), graph_targets=(Column("a"), Column("b")))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1), st.floats(0.05, 0.99))
def test_the_quantile_is_the_first_score_that_enough_are_below(
    scores: list[float], level: float
) -> None:
    got = conformal_quantile(torch.tensor(scores), level)
    needed = level * (len(scores) + 1) - 1e-9
    enough = [x for x in sorted(scores) if sum(y <= x for y in scores) >= needed]
    assert got == (enough[0] if enough else math.inf)
    assert math.isfinite(got) == (len(scores) >= least_records(level))


def number_heads() -> list[tuple[Head, Predicted]]:
    """Heads with what they might have predicted."""
    torch.manual_seed(0)
    value = torch.randn(60, 2)
    spread = torch.rand(60, 2) + 0.1
    ends = {"lower": value - spread, "upper": value + 2 * spread}
    return [
        (RegressionHead(3, SCHEMA), Predicted(value)),
        (MeanVarianceHead(3, SCHEMA), Predicted(value, {"std": spread})),
        (QuantileHead(3, SCHEMA), Predicted(value, ends)),
    ]


@pytest.mark.parametrize("number", range(3))
def test_intervals_are_those_of_the_formulas(number: int) -> None:
    head, predicted = number_heads()[number]
    targets = torch.randn(60, 2) * 2
    targets[::5, 1] = NAN
    fitted = Intervals.fit(head, 0.8, predicted, targets)
    got = {name: part.double().numpy() for name, part in fitted(predicted).parts.items()}
    y, value = targets.double().numpy(), predicted.value.double().numpy()
    parts = {name: part.double().numpy() for name, part in predicted.parts.items()}
    for column in range(2):
        known = ~np.isnan(y[:, column])
        v = value[:, column]
        low, high, scale = v, v, np.ones(60)
        if number == 1:
            errors = (v - y[:, column])[known]
            std = parts["std"][:, column] * np.sqrt(
                (errors**2).mean() / (parts["std"][known, column] ** 2).mean()
            )
            np.testing.assert_allclose(got["std"][:, column], std, rtol=1e-5)
            scale = std + np.sort(std[known])[(known.sum() - 1) // 2]
        if number == 2:
            low, high = parts["lower"][:, column], parts["upper"][:, column]
        scores = np.maximum(low - y[:, column], y[:, column] - high)[known] / scale[known]
        rank = math.ceil((known.sum() + 1) * 0.8)
        q = np.sort(scores)[rank - 1]
        lower, upper = got["lower"][:, column], got["upper"][:, column]
        np.testing.assert_allclose(lower, np.minimum(low - q * scale, v), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(upper, np.maximum(high + q * scale, v), rtol=1e-5, atol=1e-5)
        inside = (lower <= y[:, column]) & (y[:, column] <= upper)
        assert inside[known].sum() >= rank  # the record that is the quantile, too
    assert fitted(predicted).value is predicted.value
    again = Intervals(head, fitted.state())(predicted)
    torch.testing.assert_close(dict(again.parts), dict(fitted(predicted).parts))


@pytest.mark.parametrize("number", range(3))
def test_a_target_with_too_few_values_has_no_interval(number: int) -> None:
    head, predicted = number_heads()[number]
    targets = torch.randn(60, 2)
    targets[3:, 1] = NAN
    fitted = Intervals.fit(head, 0.9, predicted, targets)
    inputs = head.uncertainty_inputs("interval", fitted(predicted), targets)
    assert [len(target) for _, target in inputs.values()] == [60, 0]
    columns = head.output_columns(("lower", "upper"))
    row = {column.name: column.values(fitted(predicted))[0] for column in columns}
    assert row["b_lower"] is row["b_upper"] is None
    assert row["a_lower"] < row["a_pred"] < row["a_upper"]
    assert "too few of them for b" in fitted.description


def test_intervals_stay_on_the_scale_of_a_score() -> None:
    one = Schema(types=SCHEMA.types, graph_targets=(Column("a"),))
    head = RelatednessHead(3, one)
    raw = torch.randn(50, 5) * 3
    y = torch.empty(50, 1).uniform_(1, 5)
    got = Intervals.fit(head, 0.9, head.predict(raw), y)(head.predict(raw))
    assert float(got.parts["lower"].min()) == 1
    assert float(got.parts["upper"].max()) == 5


def test_deviations_are_as_large_as_errors() -> None:
    """Members that err alike: nine times too sure before, right on new records afterwards."""
    rng = torch.Generator().manual_seed(0)
    one = Schema(types=SCHEMA.types, graph_targets=(Column("a"),))
    head = RegressionHead(3, one)
    spread = torch.rand(4000, 1, 1, generator=rng) + 0.5  # of the members of each record
    y = torch.randn(4000, 1, generator=rng)
    common = 9 * spread[:, 0] * torch.randn(4000, 1, generator=rng)
    own = spread * torch.randn(4000, 5, 1, generator=rng)
    raw = (y + common).unsqueeze(1) + own
    fit, new = slice(0, 2000), slice(2000, None)
    ence = find_metric("ence", "deviation")
    plain = mixture([head.predict(member) for member in raw.unbind(1)], head.task)
    before = ence(*head.uncertainty_inputs("deviation", plain[new], y[new])["a"])
    fitted = Intervals.fit(head, 0.9, plain[fit], y[fit])
    after = ence(*head.uncertainty_inputs("deviation", fitted(plain[new]), y[new])["a"])
    assert before is not None
    assert after is not None
    assert before > 6
    assert after < 0.5
    errors = (plain.value[fit, 0] - y[fit, 0]).square().mean().sqrt()
    deviations = raw[fit].std(1, correction=1).squeeze(1).square().mean().sqrt()
    assert float(fitted.std_scale) == pytest.approx(float(errors / deviations), rel=1e-4)
    assert f"deviations, times {float(fitted.std_scale):.3g}, are as large" in fitted.description


def test_deviations_of_nothing_stay_nothing() -> None:
    head = RegressionHead(3, SCHEMA)
    predicted = mixture([head.predict(torch.randn(20, 2))] * 2, head.task)
    fitted = Intervals.fit(head, 0.9, predicted, torch.randn(20, 2))
    got = fitted(predicted)
    assert (got.parts["std"] == 0).all()
    assert fitted.std_scale.tolist() == [1, 1]
    assert (got.parts["lower"] < got.value).all()
    assert got.parts["upper"].isfinite().all()


def test_new_records_are_covered_as_often_as_promised() -> None:
    """2,000 new records for each of 100 fits: the mean coverage is between 0.9 and 0.9 + 1/101."""
    rng = torch.Generator().manual_seed(0)
    one = Schema(types=SCHEMA.types, graph_targets=(Column("a"),))
    head = MeanVarianceHead(3, one)
    shares = []
    for _ in range(100):
        std = torch.rand(2100, 1, generator=rng) + 0.2
        y = torch.randn(2100, 1, generator=rng) * std.square() + 5
        predicted = Predicted(torch.full_like(y, 5.0), {"std": std})
        fitted = Intervals.fit(head, 0.9, predicted[:100], y[:100])
        inputs = head.uncertainty_inputs("interval", fitted(predicted[100:]), y[100:])
        interval, target = inputs["a"]
        inside = (interval[:, 0] <= target) & (target <= interval[:, 1])
        shares.append(float(inside.double().mean()))
    assert np.mean(shares) == pytest.approx(0.9 + 0.5 / 101, abs=0.012)
