"""The paired bootstrap over test records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from graphfold.errors import DataError
from graphfold.layers.heads.eval_rows import EvalRows, Predicted
from graphfold.studies.compare_statistics import compare_records


def rows_of(errors: np.ndarray, rows_per_graph: int = 1) -> EvalRows:
    """Predictions that miss the target, 0, by some errors."""
    count = len(errors)
    return EvalRows(
        prediction=Predicted(torch.from_numpy(errors)),
        target=torch.zeros(count, dtype=torch.float64),
        loss=torch.from_numpy(errors**2),
        graph=torch.arange(count) // rows_per_graph,
        is_root=torch.ones(count, dtype=torch.bool),
        num_graphs=count // rows_per_graph,
    )


def mae(rows: EvalRows) -> float:
    return float((rows.prediction.value - rows.target).abs().mean())


def test_the_interval_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=300)
    second = first * rng.uniform(0.8, 1.3, 300)
    found = compare_records([rows_of(first), rows_of(second)], [mae, mae])
    pair = found.pairs[0]
    assert pair.difference == pytest.approx(np.abs(second).mean() - np.abs(first).mean())

    def difference(one: np.ndarray, other: np.ndarray, axis: int) -> np.ndarray:
        return np.abs(other).mean(axis) - np.abs(one).mean(axis)

    reference = stats.bootstrap(
        (first, second), difference, paired=True, n_resamples=4000, method="percentile", rng=1
    )
    spread = reference.standard_error
    assert pair.lower == pytest.approx(reference.confidence_interval.low, abs=0.2 * spread)
    assert pair.upper == pytest.approx(reference.confidence_interval.high, abs=0.2 * spread)
    assert found.half_width is None
    assert found.anova is None


def test_a_clear_difference_is_found_and_none_is_not() -> None:
    rng = np.random.default_rng(1)
    good, same, bad = rng.normal(size=200), rng.normal(size=200), rng.normal(0, 3, 200)
    runs = [rows_of(errors) for errors in (good, same, bad)]
    found = compare_records(runs, [mae] * 3, draws=500)
    assert found.pair(0, 1).p > 0.05
    assert found.pair(0, 2).p < 0.05
    assert found.pair(0, 2).lower > 0
    again = compare_records(runs, [mae] * 3, draws=500)
    assert again.pairs == found.pairs


def test_graphs_of_many_rows_are_drawn_whole() -> None:
    errors = np.repeat(np.arange(5.0), 3)
    seen: list[EvalRows] = []

    def look(rows: EvalRows) -> float:
        seen.append(rows)
        return 1.0 + len(seen)

    compare_records([rows_of(errors, 3), rows_of(errors, 3)], [look, look], draws=3)
    for one, other in zip(seen[2::2], seen[3::2], strict=True):
        assert torch.equal(one.prediction.value, other.prediction.value)
        assert one.graph.tolist() == [g for g in range(5) for _ in range(3)]
        assert all(len(set(three)) == 1 for three in one.prediction.value.view(5, 3).tolist())


def test_a_metric_that_is_mostly_undefined_is_refused() -> None:
    rows = rows_of(np.ones(4))
    values = iter([1.0, 1.0])
    with pytest.raises(DataError, match="undefined for 10 of 10 draws of the 4 test records"):
        compare_records([rows, rows], [lambda _: next(values, None)] * 2, draws=10)
