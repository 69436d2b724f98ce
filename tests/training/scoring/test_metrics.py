"""Metrics against independent implementations, and where they are undefined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as reference

from graphfold.training.scoring.metrics import (
    UndefinedMetricWarning,
    average,
    binary_metrics,
    classification_metrics,
    lower_is_better,
    regression_metrics,
    warn_of_undefined,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_classification(rng: np.random.Generator) -> None:
    probability = rng.dirichlet(np.ones(4), 200)
    target = rng.integers(0, 3, 200)  # class 3 never occurs, but is predicted
    found = classification_metrics(torch.tensor(probability), torch.tensor(target))
    predicted = probability.argmax(1)
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(target, predicted))
    wanted = reference.f1_score(target, predicted, average="macro")
    assert found["macro_f1"] == pytest.approx(wanted, abs=1e-6)


def test_binary(rng: np.random.Generator) -> None:
    target = rng.integers(0, 2, 300)
    probability = np.round(rng.uniform(0, 1, 300) * 0.7 + target * 0.3, 2)  # with ties
    found = binary_metrics(torch.tensor(probability), torch.tensor(target))
    assert found["roc_auc"] == pytest.approx(reference.roc_auc_score(target, probability), abs=1e-6)
    wanted = reference.average_precision_score(target, probability)
    assert found["pr_auc"] == pytest.approx(wanted, abs=1e-6)


def test_regression(rng: np.random.Generator) -> None:
    target = rng.normal(100, 3, 150)
    predicted = np.round(target + rng.normal(0, 2, 150), 0)  # with ties
    found = regression_metrics(torch.tensor(predicted), torch.tensor(target))
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(target, predicted))
    assert found["mse"] == pytest.approx(reference.mean_squared_error(target, predicted))
    assert found["rmse"] == pytest.approx(reference.root_mean_squared_error(target, predicted))
    assert found["r2"] == pytest.approx(reference.r2_score(target, predicted))
    assert found["pearson"] == pytest.approx(stats.pearsonr(target, predicted)[0])
    assert found["spearman"] == pytest.approx(stats.spearmanr(target, predicted)[0])


def test_one_class_only_has_no_areas() -> None:
    ones = binary_metrics(torch.tensor([0.2, 0.7]), torch.tensor([1, 1]))
    assert ones["roc_auc"] is None
    assert ones["pr_auc"] == 1.0
    zeros = binary_metrics(torch.tensor([0.2, 0.7]), torch.tensor([0, 0]))
    assert zeros == {"roc_auc": None, "pr_auc": None, "accuracy": 0.5}


def test_no_variation_has_no_correlation() -> None:
    found = regression_metrics(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0]))
    assert found["pearson"] is None
    assert found["r2"] == -1.0
    same = regression_metrics(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]))
    assert same["r2"] is None
    assert same["rmse"] == pytest.approx(2.5**0.5)


def test_no_records_have_no_metrics() -> None:
    nothing = torch.empty(0)
    assert set(regression_metrics(nothing, nothing).values()) == {None}
    assert set(binary_metrics(nothing, nothing.long()).values()) == {None}
    assert set(classification_metrics(nothing.view(0, 3), nothing.long()).values()) == {None}


def test_the_mean_is_over_tasks_with_a_value() -> None:
    found = average({"a": {"roc_auc": 0.5}, "b": {"roc_auc": None}, "c": {"roc_auc": 1.0}})
    assert found == {"roc_auc": 0.75, "roc_auc/a": 0.5, "roc_auc/b": None, "roc_auc/c": 1.0}


def test_undefined_metrics_are_named_in_a_warning() -> None:
    with pytest.warns(UndefinedMetricWarning, match="test/roc_auc: undefined .* null"):
        warn_of_undefined({"test/roc_auc": None, "test/accuracy": 0.5})


@pytest.mark.parametrize(
    ("metric", "lower"), [("val/rmse", True), ("val/mae/logS", True), ("val/r2", False)]
)
def test_direction(metric: str, lower: bool) -> None:
    assert lower_is_better(metric) is lower
