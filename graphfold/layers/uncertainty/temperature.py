"""Temperature scaling: calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head

#: The least probability whose logarithm is taken.
_LEAST = 1e-12

#: Halvings of the interval that the temperature lies in: to the last bit of a float32.
_STEPS, _RANGE = 60, 100.0


class Temperatures:
    """Divides the logits of each target by a temperature, fitted to held-out records.

    Guo et al. (2017), https://arxiv.org/abs/1706.04599, section 4.2.

    Args:
        head: the head of the model, of several classes or of yes and no.
        state: the result of `state`: `count`, the number of calibration records, and `temperature`
            [num_targets].

    Attributes:
        adds: the parts that it adds to predictions.
    """

    adds: tuple[str, ...] = ()

    def __init__(self, head: Head, state: Mapping[str, Any]) -> None:
        self.head = head
        self.count = int(state["count"])
        self.temperature: Tensor = state["temperature"]

    @staticmethod
    def fit(head: Head, predicted: Predicted, targets: Tensor) -> Temperatures:
        """Fits temperatures to some records, by maximum likelihood.

        Args:
            head: the head of the model.
            predicted: the predictions of the model.
            targets: the result of the head's `target_rows`.
        """
        measured = [*head.metric_inputs(predicted, targets).values()]
        if head.task == "binary":
            measured = [(torch.stack([1 - p, p], dim=1), classes) for p, classes in measured]
        temperature = torch.tensor([fit_temperature(*pair) for pair in measured])
        count = int(head.is_measured(targets).sum())
        return Temperatures(head, {"count": count, "temperature": temperature})

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint: plain values and tensors."""
        return {"count": self.count, "temperature": self.temperature}

    @property
    def description(self) -> str:
        """A sentence for the report."""
        return f"probabilities by temperature, calibrated on {self.count} validation records"

    def __call__(self, predicted: Predicted) -> Predicted:
        """Calibrates the probabilities of predictions."""
        p, temperature = predicted.value, self.temperature.to(predicted.value)
        if self.head.task == "multiclass":
            return replace(predicted, value=apply_temperature(p, temperature))
        both = torch.stack([1 - p, p], dim=2)
        return replace(predicted, value=apply_temperature(both, temperature)[..., 1])


def fit_temperature(probabilities: Tensor, classes: Tensor) -> float:
    """The temperature with the largest likelihood of the true classes.

    The negative log likelihood is convex in 1 / T; the zero of its derivative, Σ (log p of the true
    class - expected log p), is found by bisection between 1/100 and 100. If every true class is the
    likeliest one, the likelihood grows without end as T falls; the result is 1 then.

    Shape:
        probabilities: [num_rows, num_classes]
        classes: [num_rows]
    """
    logits = _logits(probabilities.double())
    true = logits.gather(1, classes.unsqueeze(1)).squeeze(1)
    if bool((true == logits.max(1).values).all()):  # also if there is no row
        return 1.0
    low, high = torch.tensor([1 / _RANGE, _RANGE], dtype=torch.float64).log()
    for _ in range(_STEPS):
        middle = (low + high) / 2  # the logarithm of 1 / T
        expected = (torch.softmax(logits * middle.exp(), 1) * logits).sum(1)
        if (true - expected).sum() > 0:
            low = middle
        else:
            high = middle
    return float((-(low + high) / 2).exp())


def apply_temperature(probabilities: Tensor, temperature: Tensor) -> Tensor:
    """softmax(log p / T).

    Shape:
        probabilities, returned: [..., num_classes]
        temperature: broadcasts to [...]
    """
    return torch.softmax(_logits(probabilities) / temperature.unsqueeze(-1), dim=-1)


def _logits(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=_LEAST).log()
