"""Temperature scaling and isotonic regression, against torch's optimizer and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import ClassificationHead, MultiLabelHead
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.uncertainty.conformal import (
    apply_isotonic,
    apply_temperature,
    fit_isotonic,
    fit_temperature,
)
from graphfold.layers.uncertainty.probabilities import Probabilities
from graphfold.metrics import find_metric

NAN = float("nan")
TYPES = (NodeType("atom", 0),)
CLASSES = Schema(types=TYPES, graph_targets=(Column("kind", "int64", size=4),))
ASSAYS = Schema(
    types=TYPES, graph_targets=(Column("t", "int64", size=2), Column("u", "int64", size=2))
)


def overconfident(count: int = 500) -> tuple[Tensor, Tensor]:
    """Probabilities that are too sure by a temperature of 2.5, and classes."""
    torch.manual_seed(0)
    logits = torch.randn(count, 4, dtype=torch.float64) * 2
    classes = torch.multinomial(torch.softmax(logits, 1), 1).squeeze(1)
    return torch.softmax(2.5 * logits, 1), classes


def test_the_temperature_is_where_the_likelihood_is_largest() -> None:
    probabilities, classes = overconfident()
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_temperature], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = functional.cross_entropy(probabilities.log() / log_temperature.exp(), classes)
        value.backward()
        return value

    optimizer.step(loss)
    got = fit_temperature(probabilities, classes)
    assert got == pytest.approx(float(log_temperature.detach().exp()), rel=1e-4)
    assert got == pytest.approx(2.5, rel=0.2)
    scaled = apply_temperature(probabilities, torch.tensor(got))
    torch.testing.assert_close(scaled, torch.softmax(probabilities.log() / got, 1))
    assert scaled.argmax(1).equal(probabilities.argmax(1))


def test_isotonic_regression_is_that_of_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(0)
    p = rng.random(200)
    happened = rng.random(200) < p**2
    theirs = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, happened)
    corners = fit_isotonic(torch.from_numpy(p), torch.from_numpy(happened))
    new = rng.random(100) * 1.4 - 0.2
    got = apply_isotonic(torch.from_numpy(new).float(), *corners)
    np.testing.assert_allclose(got.numpy(), theirs.predict(new), atol=2e-4)
    constant = apply_isotonic(torch.rand(3), torch.tensor([0.5]), torch.tensor([0.25]))
    assert constant.tolist() == [0.25] * 3


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated_classes_are_right_as_often_as_they_say(method: str) -> None:
    pytest.importorskip("sklearn")
    probabilities, classes = overconfident(4000)
    head = ClassificationHead(3, CLASSES)
    fit, new = slice(0, 2000), slice(2000, None)
    predicted = Predicted(probabilities.float())
    fitted = Probabilities.fit(head, 0.9, method, None, predicted[fit], classes[fit])
    after = fitted(predicted[new]).value
    torch.testing.assert_close(after.sum(1), torch.ones(2000))
    ece = find_metric("ece", "multiclass")
    assert ece(probabilities[new], classes[new]) > 0.1
    assert ece(after, classes[new]) < 0.04
    assert method in fitted.description
    again = Probabilities(head, fitted.state())
    torch.testing.assert_close(again(predicted[new]).value, after)


def test_two_classes_are_calibrated_like_any_number_of_them() -> None:
    pytest.importorskip("sklearn")
    torch.manual_seed(0)
    true = torch.rand(3000)
    classes = (torch.rand(3000) < true).long()
    sure = torch.sigmoid(3 * torch.logit(true, 1e-4))
    schema = Schema(types=TYPES, graph_targets=(Column("kind", "int64", size=2),))
    head = ClassificationHead(3, schema)
    both = Predicted(torch.stack([1 - sure, sure], dim=1))
    after = Probabilities.fit(head, 0.9, "isotonic", None, both, classes)(both).value
    torch.testing.assert_close(after.sum(1), torch.ones(3000))
    assert float((after[:, 1] - true).abs().mean()) < 0.04


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated_yes_and_no_of_targets_with_holes(method: str) -> None:
    pytest.importorskip("sklearn")
    torch.manual_seed(0)
    true = torch.rand(3000, 2)
    targets = (torch.rand(3000, 2) < true).float()
    targets[::3, 1] = NAN
    sure = torch.sigmoid(3 * torch.logit(true, 1e-4))
    head = MultiLabelHead(3, ASSAYS)
    fitted = Probabilities.fit(head, 0.9, method, None, Predicted(sure), targets)
    after = fitted(Predicted(sure)).value
    assert float((after - true).abs().mean()) < 0.04
    order = sure[:, 0].argsort()
    assert (after[order, 0].diff() >= -1e-6).all()
    assert fitted.adds == ()


def test_a_class_that_no_record_has_keeps_its_probability() -> None:
    """Isotonic regression of such a class would say 0 for ever, and of yes alone always 1."""
    pytest.importorskip("sklearn")
    probabilities, classes = overconfident()
    seen = classes != 2
    head = ClassificationHead(3, CLASSES)
    predicted = Predicted(probabilities.float())
    fitted = Probabilities.fit(head, 0.9, "isotonic", None, predicted[seen], classes[seen])
    after = fitted(predicted).value
    assert (after[:, 2] > 0).all()
    torch.testing.assert_close(after.sum(1), torch.ones(len(after)))
    sure = torch.rand(100, 2)
    targets = torch.ones(100, 2)
    targets[:50, 1] = 0
    yes_or_no = MultiLabelHead(3, ASSAYS)
    for method in ("isotonic", "temperature"):
        fitted = Probabilities.fit(yes_or_no, 0.9, method, None, Predicted(sure), targets)
        after = fitted(Predicted(sure)).value
        is_same = torch.allclose(after[:, 0], sure[:, 0])
        assert is_same == (method == "isotonic")
        assert (after.diff(dim=0) != 0).any()


def test_where_every_record_is_right_no_temperature_is_the_best() -> None:
    probabilities, _ = overconfident()
    assert fit_temperature(probabilities, probabilities.argmax(1)) == 1
    assert fit_temperature(probabilities[:0], torch.empty(0, dtype=torch.int64)) == 1
    wrong = probabilities.argmin(1)
    assert fit_temperature(probabilities, wrong) == pytest.approx(100)
