"""The tests between models equal those of statsmodels and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from graphfold.errors import DataError
from graphfold.studies.compare_statistics import compare_means

pandas = pytest.importorskip("pandas")
AnovaRM = pytest.importorskip("statsmodels.stats.anova").AnovaRM
multicomp = pytest.importorskip("statsmodels.stats.multicomp")
tukeyhsd = pytest.importorskip("statsmodels.sandbox.stats.multicomp").tukeyhsd


def scores(repetitions: int, models: int, seed: int, effect: float = 0.1) -> np.ndarray:
    """Errors with effects of models and of repetitions, and noise."""
    rng = np.random.default_rng(seed)
    blocks, noise = rng.normal(0, 0.3, (repetitions, 1)), rng.normal(0, 0.1, (repetitions, models))
    return 1 + effect * np.arange(models) + blocks + noise


def long_table(values: np.ndarray) -> pandas.DataFrame:
    rows = [(b, f"m{m}", v) for b, row in enumerate(values) for m, v in enumerate(row)]
    return pandas.DataFrame(rows, columns=["block", "model", "value"])


@pytest.mark.parametrize(("repetitions", "models"), [(25, 3), (5, 4), (3, 2)])
def test_repeated_measures_are_those_of_statsmodels(repetitions: int, models: int) -> None:
    values = scores(repetitions, models, seed=repetitions)
    found = compare_means(values, repeated=True)
    table = AnovaRM(long_table(values), "value", "block", within=["model"]).fit().anova_table
    assert found.anova is not None
    assert found.anova.degrees == (int(table["Num DF"].iloc[0]), int(table["Den DF"].iloc[0]))
    assert found.anova.statistic == pytest.approx(table["F Value"].iloc[0], rel=1e-9)
    assert found.anova.p == pytest.approx(table["Pr > F"].iloc[0], rel=1e-6)
    # statsmodels' Tukey HSD takes the error and its degrees of freedom from whoever calls it.
    means, degrees = values.mean(0), found.anova.degrees[1]
    left = values - means - values.mean(1, keepdims=True) + values.mean()
    error = (left**2).sum() / degrees
    reference = tukeyhsd(
        means, np.full(models, repetitions), error, np.full(models, degrees / models)
    )
    means, intervals, p = reference[2], reference[4], reference[8]
    for pair, mean, bounds, p_value in zip(found.pairs, means, intervals, p, strict=True):
        assert pair.difference == pytest.approx(mean, abs=1e-12)
        assert (pair.lower, pair.upper) == pytest.approx(tuple(bounds), abs=1e-3)
        assert pair.p == pytest.approx(p_value, abs=2e-3)  # statsmodels interpolates a table


@pytest.mark.parametrize("models", [2, 3, 5])
def test_independent_samples_are_those_of_pairwise_tukeyhsd(models: int) -> None:
    values = scores(6, models, seed=models, effect=0.2)
    found = compare_means(values, repeated=False)
    table = long_table(values)
    reference = multicomp.pairwise_tukeyhsd(table["value"], table["model"])
    own = stats.tukey_hsd(*values.T)
    bounds = own.confidence_interval()
    for number, pair in enumerate(found.pairs):
        assert pair.difference == pytest.approx(reference.meandiffs[number], abs=1e-12)
        interval = reference.confint[number]
        assert (pair.lower, pair.upper) == pytest.approx(tuple(interval), abs=1e-3)
        assert pair.p == pytest.approx(reference.pvalues[number], abs=2e-3)
        assert pair.p == pytest.approx(own.pvalue[pair.first, pair.second], abs=1e-9)
        assert pair.upper == pytest.approx(bounds.high[pair.second, pair.first], abs=1e-9)
    assert found.anova is not None
    one_way = stats.f_oneway(*values.T)
    assert found.anova.statistic == pytest.approx(one_way.statistic)
    assert found.anova.p == pytest.approx(one_way.pvalue)


@pytest.mark.parametrize(("repeated", "effect"), [(True, 0.1), (False, 0.2)])
def test_intervals_that_do_not_overlap_are_the_differences_found(
    repeated: bool, effect: float
) -> None:
    found = compare_means(scores(10, 5, seed=3, effect=effect), repeated)
    assert found.half_width is not None
    overlap = {abs(pair.difference) < 2 * found.half_width for pair in found.pairs}
    assert overlap == {True, False}
    for pair in found.pairs:
        assert (pair.p < 0.05) == (abs(pair.difference) > 2 * found.half_width)
        assert (pair.p < 0.05) == (pair.lower > 0 or pair.upper < 0)


def test_the_order_of_a_pair_may_be_turned() -> None:
    found = compare_means(scores(5, 3, seed=1), repeated=True)
    there, back = found.pair(0, 2), found.pair(2, 0)
    assert (back.difference, back.lower, back.upper) == (
        -there.difference,
        -there.upper,
        -there.lower,
    )


@given(shift=st.floats(-100, 100), seed=st.integers(0, 20))
@settings(max_examples=5)
def test_what_is_hard_for_all_is_no_error(shift: float, seed: int) -> None:
    values = scores(4, 3, seed)
    moved = values + np.array([[shift], [0], [0], [-shift]])
    first, second = (compare_means(v, repeated=True).pairs for v in (values, moved))
    for one, other in zip(first, second, strict=True):
        assert one.p == pytest.approx(other.p, abs=1e-6)


def test_copies_of_the_same_runs_are_refused() -> None:
    values = np.repeat(np.random.default_rng(0).normal(size=(5, 1)), 3, axis=1)
    with pytest.raises(DataError, match=r"the same in every repetition, so there is no error"):
        compare_means(values, repeated=True)
