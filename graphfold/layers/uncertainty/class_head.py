"""CalibratedClassHead: probabilities that hold what they promise, and sets of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import MetricInputs
from graphfold.layers.heads.head import Head, Predictions
from graphfold.layers.uncertainty.conformal import (
    SET_SCORES,
    apply_isotonic,
    apply_temperature,
    conformal_quantile,
    fit_isotonic,
    fit_temperature,
)
from graphfold.layers.uncertainty.outer_head import OuterHead


class CalibratedClassHead(OuterHead):
    """Calibrates the probabilities of another head, and tells which classes may be true.

    Temperature scaling has one temperature for each target; isotonic regression one function for
    each target, of several classes one for each of them, whose values are divided by their sum. A
    set has every class whose score is at most the conformal quantile of the scores of true classes,
    and the likeliest one in any case; it holds the true class with a probability of at least
    `level`. Of yes and no, `lac` and `aps` give the same sets. A target with too few measured
    values has no sets. A class that no record has, or all have, has no function; and where every
    record is right, no temperature is the best: there probabilities stay as they are.

    Args:
        inner: the head inside, of several classes or of yes and no.
        state: what `state` gave: `level`; `count`, how many records it was fitted on, and `counts`
            of them for each target; `method` ("temperature", "isotonic" or None), `sets` ("lac",
            "aps" or None); and what was fitted: `temperature` [num_targets], `corners` (a pair of
            tensors for each function), `quantile` [num_targets], infinite where there are no sets.
            `score` names the scores of the sets; earlier versions have none and mean `whole_aps` by
            "aps".
    """

    def __init__(self, inner: Head, state: Mapping[str, Any]) -> None:
        super().__init__(inner, ())
        self._state = dict(state)
        self.sets = state["sets"]
        self.share = float(state["level"])
        self.counts = state.get("counts", torch.tensor([int(state["count"])] * len(self.targets)))
        earlier = "whole_aps" if self.sets == "aps" else self.sets
        self._score = state.get("score", earlier)

    @staticmethod
    def fit(
        inner: Head,
        level: float,
        method: str | None,
        sets: str | None,
        prediction: Tensor,
        targets: Tensor,
    ) -> CalibratedClassHead:
        """The head that is fitted to some records.

        Args:
            inner: the head inside.
            level: the probability that a set holds the true class.
            method: how probabilities are calibrated.
            sets: the scores of the classes; None for no sets.
            prediction: what its `decode` gave.
            targets: what its `target_rows` gave.

        Raises:
            ConfigError: for isotonic regression without scikit-learn.
        """
        count = int(inner.is_measured(targets).sum())
        state: dict[str, Any] = {"level": level, "count": count, "method": method, "sets": None}
        measured = _measured(inner, prediction, targets).values()
        state["counts"] = torch.tensor([len(classes) for _, classes in measured])
        if method == "temperature":
            state["temperature"] = torch.tensor([fit_temperature(*pair) for pair in measured])
        if method == "isotonic":
            state["corners"] = _fit_functions(measured, inner.task == "binary")
        head = CalibratedClassHead(inner, state)
        if sets is None:
            return head
        score = SET_SCORES[sets]
        calibrated = _measured(inner, head.calibrate(prediction), targets).values()
        scores = [score(p).gather(1, c.unsqueeze(1)).squeeze(1) for p, c in calibrated]
        state["quantile"] = torch.tensor([conformal_quantile(own, level) for own in scores])
        return CalibratedClassHead(inner, {**state, "sets": sets, "score": sets})

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        return self._state

    @property
    def description(self) -> str:
        """A sentence for the report."""
        done = [f"probabilities by {self._state['method']}"] if self._state["method"] else []
        done += [f"{self._state['level']:.0%} sets ({self.sets})"] if self.sets else []
        return f"{' and '.join(done)}, calibrated on {self._state['count']} validation records"

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Those of the inner head, then the set."""
        return (*self.inner.extra_columns, *(["set"] if self.sets else []))

    @property
    def uncertainty_tasks(self) -> tuple[str, ...]:
        """The sets, if there are any."""
        return ("sets",) if self.sets else ()

    @property
    def has_sets(self) -> list[bool]:
        """True for each target that has sets."""
        if not self.sets:
            return [False] * len(self.targets)
        found: list[bool] = self._state["quantile"].isfinite().tolist()
        return found

    def decode(self, raw: Tensor) -> Tensor:
        """As the inner head, with calibrated probabilities."""
        return self.calibrate(self.inner.decode(raw))

    def calibrate(self, prediction: Tensor) -> Tensor:
        """A prediction of the inner head with calibrated probabilities."""
        found = _by_class(self.inner, prediction)
        if self._state["method"] == "temperature":
            found = apply_temperature(found, self._state["temperature"].to(prediction))
        elif self._state["method"] == "isotonic":
            found = self._isotonic(found)
        values = found[:, 0] if self.task == "multiclass" else found[..., 1]
        if len(self.parts) == 1:
            return values
        return torch.cat([values.unsqueeze(-1), prediction[..., 1:]], dim=-1)

    def uncertainty_inputs(self, task: str, prediction: Tensor, targets: Tensor) -> MetricInputs:
        measured = _measured(self.inner, prediction, targets)
        found = {}
        for number, (name, (probabilities, classes)) in enumerate(measured.items()):
            rows = slice(None) if self.has_sets[number] else slice(0)
            found[name] = (self._sets_of(probabilities[rows], number), classes[rows])
        return found

    def predictions(self, prediction: Tensor) -> Predictions:
        found = super().predictions(prediction)
        if not self.sets:
            return found
        by_class = _by_class(self.inner, prediction)
        has_sets = self.has_sets
        for number, column in enumerate(self.columns):
            if not has_sets[number]:
                for row in found:
                    row[column.name] = row[column.name].with_extra({"set": None})
                continue
            labels = [str(label) for label in self.labels(column)]
            for row, members in zip(found, self._sets_of(by_class[:, number], number), strict=True):
                chosen = [x for x, is_in in zip(labels, members.tolist(), strict=True) if is_in]
                told = row[column.name]
                row[column.name] = replace(told, extra={**told.extra, "set": "|".join(chosen)})
        return found

    def _isotonic(self, found: Tensor) -> Tensor:
        """The values of the fitted functions, [num_rows, num_targets, num_classes]."""
        corners = [(x.to(found), y.to(found)) for x, y in self._state["corners"]]
        if self.task == "binary":
            yes = [apply_isotonic(found[:, i, 1], *pair) for i, pair in enumerate(corners)]
            p = torch.stack(yes, dim=1)
            return torch.stack([1 - p, p], dim=2)
        each = [apply_isotonic(found[:, 0, i], *pair) for i, pair in enumerate(corners)]
        values = torch.stack(each, dim=1)
        total = values.sum(1, keepdim=True)
        # Where all functions are zero, nothing is known but what the model said.
        return torch.where(total > 0, values / total, found[:, 0]).unsqueeze(1)

    def _sets_of(self, probabilities: Tensor, number: int) -> Tensor:
        """[num_rows, num_classes] bool, which classes of a target may be true."""
        quantile = float(self._state["quantile"][number])
        members = SET_SCORES[self._score](probabilities) <= quantile
        return members.scatter(1, probabilities.argmax(1, keepdim=True), True)


def _by_class(head: Head, prediction: Tensor) -> Tensor:
    """[num_rows, num_targets, num_classes] the probabilities that a head predicts."""
    values = head.values(prediction)
    if head.task == "multiclass":
        return values.unsqueeze(1)
    return torch.stack([1 - values, values], dim=2)


def _measured(head: Head, prediction: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """target -> probabilities [num_measured, num_classes] and classes of the measured rows."""
    inputs = head.metric_inputs(prediction, targets)
    if head.task == "multiclass":
        return dict(inputs)
    return {
        name: (torch.stack([1 - p, p], dim=1), classes) for name, (p, classes) in inputs.items()
    }


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
