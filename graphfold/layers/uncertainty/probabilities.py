"""Probabilities: calibrated so that they hold what they promise, and sets of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.conformal import (
    SET_SCORES,
    apply_isotonic,
    apply_temperature,
    conformal_quantile,
    fit_isotonic,
    fit_temperature,
)


class Probabilities:
    """Calibrates probabilities, and tells which classes may be true.

    Temperature scaling has one temperature for each target; isotonic regression one function for
    each target, of several classes one for each of them, whose values are divided by their sum. A
    set has every class whose score is at most the conformal quantile of the scores of true classes,
    and the likeliest one in any case; it holds the true class with a probability of at least
    `level`. Of yes and no, `lac` and `aps` give the same sets. A target with too few measured
    values has no sets. A class that no record has, or all have, has no function; and where every
    record is right, no temperature is the best: there probabilities stay as they are.

    Args:
        head: the head of the model, of several classes or of yes and no.
        state: what `state` gave: `level`; `count`, how many records it was fitted on, and `counts`
            of them for each target; `method` ("temperature", "isotonic" or None), `sets` ("lac",
            "aps" or None); and what was fitted: `temperature` [num_targets], `corners` (a pair of
            tensors for each function), `quantile` [num_targets], infinite where there are no sets.
            `score` names the scores of the sets; earlier versions have none and mean `whole_aps` by
            "aps".

    Attributes:
        task: that of the metrics which judge the sets; None without sets.
        adds: the parts that predictions get.
    """

    def __init__(self, head: Head, state: Mapping[str, Any]) -> None:
        self.head = head
        self._state = dict(state)
        self.method, self.sets = state["method"], state["sets"]
        self.level = float(state["level"])
        self.counts: Tensor = state.get(
            "counts", torch.tensor([int(state["count"])] * len(head.targets))
        )
        earlier = "whole_aps" if self.sets == "aps" else self.sets
        self._score = state.get("score", earlier)
        self.task = "sets" if self.sets else None
        self.adds = ("set",) if self.sets else ()

    @staticmethod
    def fit(
        head: Head,
        level: float,
        method: str | None,
        sets: str | None,
        predicted: Predicted,
        targets: Tensor,
    ) -> Probabilities:
        """The calibration that is fitted to some records.

        Args:
            head: the head of the model.
            level: the probability that a set holds the true class.
            method: how probabilities are calibrated.
            sets: the scores of the classes; None for no sets.
            predicted: what the model predicted.
            targets: what the head's `target_rows` gave.

        Raises:
            ConfigError: for isotonic regression without scikit-learn.
        """
        count = int(head.is_measured(targets).sum())
        state: dict[str, Any] = {"level": level, "count": count, "method": method, "sets": None}
        measured = _measured(head, predicted, targets)
        state["counts"] = torch.tensor([len(classes) for _, classes in measured])
        if method == "temperature":
            state["temperature"] = torch.tensor([fit_temperature(*pair) for pair in measured])
        if method == "isotonic":
            state["corners"] = _fit_functions(measured, head.task == "binary")
        fitted = Probabilities(head, state)
        if sets is None:
            return fitted
        score = SET_SCORES[sets]
        calibrated = _measured(head, fitted(predicted), targets)
        scores = [score(p).gather(1, c.unsqueeze(1)).squeeze(1) for p, c in calibrated]
        state["quantile"] = torch.tensor([conformal_quantile(own, level) for own in scores])
        return Probabilities(head, {**state, "sets": sets, "score": sets})

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        return self._state

    @property
    def description(self) -> str:
        """A sentence for the report."""
        done = [f"probabilities by {self.method}"] if self.method else []
        done += [f"{self._state['level']:.0%} sets ({self.sets})"] if self.sets else []
        return f"{' and '.join(done)}, calibrated on {self._state['count']} validation records"

    def __call__(self, predicted: Predicted) -> Predicted:
        """The same with calibrated probabilities, and with sets if there are any."""
        is_one = self.head.task == "multiclass"
        each = _by_class(self.head.task, predicted.value)
        if self.method is not None:
            if self.method == "temperature":
                each = apply_temperature(each, self._state["temperature"].to(each))
            else:
                each = self._isotonic(each)
            predicted = replace(predicted, value=each[:, 0] if is_one else each[..., 1])
        if not self.sets:
            return predicted
        each = _by_class(self.head.task, predicted.value)  # no and yes add up to 1, to the last bit
        sets = torch.stack([self._set_of(p, k) for k, p in enumerate(each.unbind(1))], dim=1)
        return predicted.with_parts(set=sets[:, 0] if is_one else sets)

    def _isotonic(self, each: Tensor) -> Tensor:
        """The values of the fitted functions, [num_rows, num_targets, num_classes]."""
        corners = [(x.to(each), y.to(each)) for x, y in self._state["corners"]]
        if self.head.task == "binary":
            yes = [apply_isotonic(each[:, i, 1], *pair) for i, pair in enumerate(corners)]
            p = torch.stack(yes, dim=1)
            return torch.stack([1 - p, p], dim=2)
        by_class = [apply_isotonic(each[:, 0, i], *pair) for i, pair in enumerate(corners)]
        values = torch.stack(by_class, dim=1)
        total = values.sum(1, keepdim=True)
        # Where all functions are zero, nothing is known but what the model said.
        return torch.where(total > 0, values / total, each[:, 0]).unsqueeze(1)

    def _set_of(self, probabilities: Tensor, number: int) -> Tensor:
        """[num_rows, num_classes] bool, which classes may be true; none without a quantile."""
        quantile = float(self._state["quantile"][number])
        if not quantile < float("inf"):
            return torch.zeros_like(probabilities, dtype=torch.bool)
        members = SET_SCORES[self._score](probabilities) <= quantile
        return members.scatter(1, probabilities.argmax(1, keepdim=True), True)


def _by_class(task: str, value: Tensor) -> Tensor:
    """[num_rows, num_targets, num_classes] the probabilities that a head predicts."""
    return value.unsqueeze(1) if task == "multiclass" else torch.stack([1 - value, value], dim=2)


def _measured(head: Head, predicted: Predicted, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of each target, probabilities [num_measured, num_classes] and classes of measured rows."""
    pairs = head.metric_inputs(predicted, targets).values()
    if head.task == "multiclass":
        return [*pairs]
    return [(torch.stack([1 - p, p], dim=1), classes) for p, classes in pairs]


def _fit_functions(
    measured: Iterable[tuple[Tensor, Tensor]], is_binary: bool
) -> list[tuple[Tensor, Tensor]]:
    """The isotonic function of yes for each binary target, or of each of several classes.

    A class that all records have, or none, keeps its probability.
    """
    functions = []
    for probabilities, classes in measured:
        for label in [1] if is_binary else range(probabilities.shape[1]):
            happened = classes == label
            if happened.any() and not happened.all():
                functions.append(fit_isotonic(probabilities[:, label], happened))
            else:  # no record says where the probability is too large, or too small
                functions.append((torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0])))
    return functions
