"""Metrics against independent implementations, and where they are undefined."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as reference
from torch import Tensor

from graphfold.metrics import builtin_metrics, find_metric, metric


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def values(task: str, predicted: Tensor, target: Tensor) -> dict[str, float | None]:
    """All built-in metrics of a task."""
    return {name: metric(predicted, target) for name, metric in builtin_metrics(task).items()}


def test_classes(rng: np.random.Generator) -> None:
    probability = rng.dirichlet(np.ones(5), 200)
    target = rng.integers(0, 4, 200)  # class 4 never occurs, but is predicted
    actual = values("multiclass", torch.tensor(probability), torch.tensor(target))
    predicted = probability.argmax(1)
    assert actual["accuracy"] == pytest.approx(reference.accuracy_score(target, predicted))
    assert actual["macro_f1"] == pytest.approx(
        reference.f1_score(target, predicted, average="macro")
    )
    assert actual["mcc"] == pytest.approx(reference.matthews_corrcoef(target, predicted))


def test_yes_or_no(rng: np.random.Generator) -> None:
    target = rng.integers(0, 2, 300)
    probability = np.round(rng.uniform(0, 1, 300) * 0.7 + target * 0.3, 2)  # with ties
    actual = values("binary", torch.tensor(probability), torch.tensor(target))
    assert actual["roc_auc"] == pytest.approx(
        reference.roc_auc_score(target, probability), abs=1e-6
    )
    wanted = reference.average_precision_score(target, probability)
    assert actual["pr_auc"] == pytest.approx(wanted, abs=1e-6)
    answer = probability > 0.5
    assert actual["mcc"] == pytest.approx(reference.matthews_corrcoef(target, answer))
    assert actual["accuracy"] == pytest.approx(reference.accuracy_score(target, answer))
    assert actual["f1"] == pytest.approx(reference.f1_score(target, answer))
    assert actual["macro_f1"] == pytest.approx(reference.f1_score(target, answer, average="macro"))


def test_positive_or_negative_roots_of_five_classes(rng: np.random.Generator) -> None:
    probability = rng.dirichlet(np.ones(5), 100)
    target = rng.integers(0, 5, 100)
    clear = target != 2
    positive = probability[:, 3] + probability[:, 4] > probability[:, 0] + probability[:, 1]
    wanted = reference.accuracy_score(target[clear] > 2, positive[clear])
    actual = values("multiclass", torch.tensor(probability), torch.tensor(target))
    assert actual["root_binary_accuracy"] == pytest.approx(wanted)
    assert actual["root_accuracy"] == actual["node_accuracy"] == actual["accuracy"]


def test_numbers(rng: np.random.Generator) -> None:
    target = rng.normal(100, 3, 150)
    predicted = np.round(target + rng.normal(0, 2, 150), 0)  # with ties
    actual = values("regression", torch.tensor(predicted), torch.tensor(target))
    assert actual["mae"] == pytest.approx(reference.mean_absolute_error(target, predicted))
    assert actual["mse"] == pytest.approx(reference.mean_squared_error(target, predicted))
    assert actual["rmse"] == pytest.approx(reference.root_mean_squared_error(target, predicted))
    assert actual["r2"] == pytest.approx(reference.r2_score(target, predicted))
    assert actual["pearson"] == pytest.approx(stats.pearsonr(target, predicted)[0])
    assert actual["spearman"] == pytest.approx(stats.spearmanr(target, predicted)[0])


def test_one_class_only_has_no_areas() -> None:
    ones = values("binary", torch.tensor([0.2, 0.7]), torch.tensor([1, 1]))
    assert ones.pop("ece") == pytest.approx(0.55)
    assert ones.pop("macro_f1") == pytest.approx(1 / 3)
    assert ones.pop("f1") == pytest.approx(2 / 3)
    assert ones == {"roc_auc": None, "pr_auc": 1.0, "accuracy": 0.5, "mcc": None}
    zeros = values("binary", torch.tensor([0.2, 0.7]), torch.tensor([0, 0]))
    assert zeros.pop("ece") == pytest.approx(0.45)
    assert zeros.pop("macro_f1") == pytest.approx(1 / 3)
    assert zeros.pop("f1") == 0
    assert zeros == {"roc_auc": None, "pr_auc": None, "accuracy": 0.5, "mcc": None}
    never = values("binary", torch.tensor([0.2, 0.4]), torch.tensor([0, 0]))
    assert never["f1"] is None
    assert never["macro_f1"] == 1


def test_a_constant_prediction_has_no_correlation_with_classes() -> None:
    assert find_metric("mcc", "binary")(torch.tensor([0.9, 0.9]), torch.tensor([0, 1])) == 0.0


def test_no_variation_has_no_correlation() -> None:
    actual = values("regression", torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0]))
    assert actual["pearson"] is None
    assert actual["r2"] == -1.0
    same = values("regression", torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]))
    assert same["r2"] is None
    assert same["rmse"] == pytest.approx(2.5**0.5)


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_no_records_have_no_metrics(task: str) -> None:
    nothing = torch.empty(0)
    predicted = nothing.view(0, 5) if task == "multiclass" else nothing
    target = nothing if task == "regression" else nothing.long()
    assert set(values(task, predicted, target).values()) == {None}


def test_every_metric_says_what_it_is() -> None:
    for task in ("regression", "binary", "multiclass"):
        assert all(m.description.endswith(".") for m in builtin_metrics(task).values())
        assert all(m.task == task for m in builtin_metrics(task).values())


@metric(task="regression", higher_is_better=False)
def largest_error(predicted: Tensor, target: Tensor) -> Tensor:
    """The largest error."""
    return (predicted - target).abs().max()


def test_a_decorated_function_is_a_metric() -> None:
    assert largest_error.name == "largest_error"
    assert largest_error.description == "The largest error."
    assert not largest_error.higher_is_better
    assert largest_error(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0])) == 3.0
    assert largest_error(torch.tensor([1.0]), torch.tensor([float("inf")])) is None


def test_a_metric_travels_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(largest_error)) is largest_error
