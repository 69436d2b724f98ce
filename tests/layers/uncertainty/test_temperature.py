"""Temperature scaling, against torch's optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from graphfold.dag import Column, NodeType, Schema
from graphfold.layers import ClassificationHead, MultiLabelHead
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.uncertainty.calibration import fit_calibration
from graphfold.layers.uncertainty.temperature import (
    Temperatures,
    apply_temperature,
    fit_temperature,
)
from graphfold.metrics import find_metric

NAN = float("nan")
TYPES = (NodeType("atom", 0),)
CLASSES = Schema(types=TYPES, graph_targets=(Column("kind", "int64", size=4),))
ASSAYS = Schema(
    types=TYPES, graph_targets=tuple(Column(name, "int64", size=2) for name in ("t", "u", "v"))
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


def test_calibrated_classes_are_right_as_often_as_they_say() -> None:
    probabilities, classes = overconfident(4000)
    head = ClassificationHead(3, CLASSES)
    fit, new = slice(0, 2000), slice(2000, None)
    predicted = Predicted(probabilities.float())
    fitted = Temperatures.fit(head, predicted[fit], classes[fit])
    after = fitted(predicted[new]).value
    torch.testing.assert_close(after.sum(1), torch.ones(2000))
    ece = find_metric("ece", "multiclass")
    assert ece(probabilities[new], classes[new]) > 0.1
    assert ece(after, classes[new]) < 0.04
    assert "2000 validation records" in fitted.description
    again = Temperatures(head, fitted.state())
    torch.testing.assert_close(again(predicted[new]).value, after)


def test_each_yes_and_no_has_a_temperature_of_its_measured_values() -> None:
    torch.manual_seed(0)
    true = torch.rand(3000, 3)
    targets = (torch.rand(3000, 3) < true).float()
    targets[::3, 1] = targets[:, 2] = NAN
    sure = Predicted(torch.sigmoid(3 * torch.logit(true, 1e-4)))
    head = MultiLabelHead(3, ASSAYS)
    fitted = fit_calibration(head, "temperature", 0.9, sure, targets)
    assert isinstance(fitted, Temperatures)
    after = fitted(sure).value
    assert (after - true)[:, :2].abs().mean() < 0.04
    torch.testing.assert_close(after[:, 2], sure.value[:, 2])
    assert fitted.adds == ()
    assert fit_calibration(head, "temperature", 0.9, sure, targets * NAN) is None


def test_where_every_record_is_right_no_temperature_is_the_best() -> None:
    probabilities, _ = overconfident()
    assert fit_temperature(probabilities, probabilities.argmax(1)) == 1
    assert fit_temperature(probabilities[:0], torch.empty(0, dtype=torch.int64)) == 1
    wrong = probabilities.argmin(1)
    assert fit_temperature(probabilities, wrong) == pytest.approx(100)
