"""Conformal quantiles, intervals and sets, against their formulas and by counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import (
    ClassificationHead,
    MeanVarianceHead,
    MultiLabelHead,
    QuantileHead,
    RegressionHead,
)
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.class_head import CalibratedClassHead
from graphfold.layers.uncertainty.conformal import (
    aps_scores,
    conformal_quantile,
    lac_scores,
    least_records,
)
from graphfold.layers.uncertainty.interval_head import IntervalHead

NAN = float("nan")
SCHEMA = Schema(types=(NodeType("atom", 0),), graph_targets=(Column("a"), Column("b")))
CLASSES = Schema(types=SCHEMA.types, graph_targets=(Column("kind", "int64", size=4),))
ASSAYS = Schema(
    types=SCHEMA.types,
    graph_targets=(Column("t", "int64", size=2), Column("u", "int64", size=2)),
)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1), st.floats(0.05, 0.99))
def test_the_quantile_is_the_first_score_that_enough_are_below(
    scores: list[float], level: float
) -> None:
    got = conformal_quantile(torch.tensor(scores), level)
    needed = level * (len(scores) + 1) - 1e-9
    enough = [x for x in sorted(scores) if sum(y <= x for y in scores) >= needed]
    assert got == (enough[0] if enough else math.inf)
    assert math.isfinite(got) == (len(scores) >= least_records(level))


@pytest.mark.parametrize(("level", "least"), [(0.9, 9), (0.8, 4), (0.95, 19), (0.5, 1)])
def test_the_least_number_of_records(level: float, least: int) -> None:
    assert least_records(level) == least


def number_heads() -> list[tuple[Head, torch.Tensor]]:
    """Heads with what their `decode` might have given."""
    torch.manual_seed(0)
    value = torch.randn(60, 2)
    spread = torch.rand(60, 2) + 0.1
    return [
        (RegressionHead(3, SCHEMA), value),
        (MeanVarianceHead(3, SCHEMA), torch.stack([value, spread], -1)),
        (QuantileHead(3, SCHEMA), torch.stack([value, value - spread, value + 2 * spread], -1)),
    ]


@pytest.mark.parametrize("number", range(3))
def test_intervals_are_those_of_the_formulas(number: int) -> None:
    head, prediction = number_heads()[number]
    targets = torch.randn(60, 2) * 2
    targets[::5, 1] = NAN
    fitted = IntervalHead.fit(head, 0.8, prediction, targets)
    head.decode = lambda raw: raw  # type: ignore[method-assign]
    got = fitted.decode(prediction).double().numpy()
    y, value = targets.double().numpy(), head.values(prediction).double().numpy()
    parts = prediction.double().numpy()
    for column in range(2):
        known = ~np.isnan(y[:, column])
        v = value[:, column]
        low, high, scale = v, v, np.ones(60)
        if number == 1:
            std = parts[:, column, 1]
            scale = std + np.sort(std[known])[(known.sum() - 1) // 2]
        if number == 2:
            low, high = parts[:, column, 1], parts[:, column, 2]
        scores = np.maximum(low - y[:, column], y[:, column] - high)[known] / scale[known]
        rank = math.ceil((known.sum() + 1) * 0.8)
        q = np.sort(scores)[rank - 1]
        at = [fitted.parts.index(name) for name in ("lower", "upper")]
        np.testing.assert_allclose(got[:, column, at[0]], np.minimum(low - q * scale, v), rtol=1e-5)
        np.testing.assert_allclose(
            got[:, column, at[1]], np.maximum(high + q * scale, v), rtol=1e-5
        )
    np.testing.assert_allclose(fitted.values(torch.tensor(got)), value)
    again = IntervalHead.of(head, fitted.state())
    torch.testing.assert_close(again.decode(prediction), fitted.decode(prediction))


@pytest.mark.parametrize("number", range(3))
def test_a_target_with_too_few_values_has_no_interval(number: int) -> None:
    head, prediction = number_heads()[number]
    targets = torch.randn(60, 2)
    targets[3:, 1] = NAN
    fitted = IntervalHead.fit(head, 0.9, prediction, targets)
    head.decode = lambda raw: raw  # type: ignore[method-assign]
    row = fitted.predictions(fitted.decode(prediction), {})[0]
    assert row["b"].extra["lower"] is row["b"].extra["upper"] is None
    assert row["a"].extra["lower"] < row["a"].value < row["a"].extra["upper"]
    assert "too few of them for b" in fitted.description
    assert len(fitted.columns_of({})) == 2 * (1 + len(row["a"].extra))


def test_new_records_are_covered_as_often_as_promised() -> None:
    """2,000 new records for each of 100 fits: the mean coverage is between 0.9 and 0.9 + 1/101."""
    rng = torch.Generator().manual_seed(0)
    one = Schema(types=SCHEMA.types, graph_targets=(Column("a"),))
    head = MeanVarianceHead(3, one)
    head.decode = lambda raw: raw  # type: ignore[method-assign]
    shares = []
    for _ in range(100):
        std = torch.rand(2100, 1, generator=rng) + 0.2
        y = torch.randn(2100, 1, generator=rng) * std.square() + 5
        prediction = torch.stack([torch.full_like(y, 5.0), std], -1)
        fitted = IntervalHead.fit(head, 0.9, prediction[:100], y[:100])
        (interval, target) = fitted.uncertainty_inputs(
            "interval", fitted.decode(prediction[100:]), y[100:]
        )["a"]
        inside = (interval[:, 0] <= target) & (target <= interval[:, 1])
        shares.append(float(inside.double().mean()))
    assert np.mean(shares) == pytest.approx(0.9 + 0.5 / 101, abs=0.012)


def test_scores_of_classes_are_those_of_the_papers() -> None:
    p = torch.softmax(torch.randn(20, 4), 1)
    torch.testing.assert_close(lac_scores(p), 1 - p)
    for row, scores in zip(p.tolist(), aps_scores(p).tolist(), strict=True):
        for own, score in zip(row, scores, strict=True):
            assert score == pytest.approx(sum(other for other in row if other >= own))


@pytest.mark.parametrize("sets", ["lac", "aps"])
def test_sets_hold_the_true_class_as_often_as_promised(sets: str) -> None:
    torch.manual_seed(0)
    head = ClassificationHead(3, CLASSES)
    p = torch.softmax(2 * torch.randn(6000, 4), 1)
    classes = torch.multinomial(p, 1).squeeze(1)
    classes[::7] = -1
    fitted = CalibratedClassHead.fit(head, 0.9, None, sets, p[:3000], classes[:3000])
    found = fitted.uncertainty_inputs("sets", p[3000:], classes[3000:])
    chosen, true = found["kind"]
    covered = chosen.gather(1, true.unsqueeze(1)).double().mean()
    assert 0.875 < float(covered) < (0.925 if sets == "lac" else 1.0)
    assert chosen.any(1).all()
    best = p[3000:][classes[3000:] >= 0].argmax(1)
    assert chosen[torch.arange(len(best)), best].all()
    row = fitted.predictions(p[:1], {"kind": list("abcd")})[0]["kind"]
    named = row.extra["set"].split("|")
    assert row.value in named
    assert fitted.columns_of({})[-1] == "kind_set"


def test_sets_of_yes_and_no_are_those_of_two_classes() -> None:
    torch.manual_seed(0)
    head = MultiLabelHead(3, ASSAYS)
    p = torch.rand(400, 2)
    targets = (torch.rand(400, 2) < p).float()
    targets[::3, 1] = NAN
    fitted = CalibratedClassHead.fit(head, 0.8, None, "lac", p, targets)
    for number, name in enumerate(("t", "u")):
        known = ~targets[:, number].isnan()
        own = torch.where(targets[:, number] == 1, p[:, number], 1 - p[:, number])[known]
        q = conformal_quantile(1 - own, 0.8)
        sets, _ = fitted.uncertainty_inputs("sets", p, targets)[name]
        both = torch.stack([1 - p[:, number], p[:, number]], 1)[known]
        want = (1 - both <= q).scatter(1, both.argmax(1, keepdim=True), True)
        assert sets.equal(want)
