"""Intervals: conformal intervals around numbers, fitted to held-out predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head

#: The relative rounding error of a float32.
_LAST_DIGITS = 5e-7


class Intervals:
    """Adds intervals that contain the true number with a probability of `level`.

    Split conformal prediction. With q the conformal quantile of the scores s of the calibration
    records, the interval around a prediction ŷ is

    - for a model that predicts an interval [a, b], s = max(a - y, y - b): [a - q, b + q], equation
      4 of Romano et al. (2019), https://arxiv.org/abs/1905.03222;
    - for a model that predicts a standard deviation σ, s = |y - ŷ| / (σ + m): ŷ ± q (σ + m), where
      m, the median of σ over the records, keeps small deviations from making large scores,
      Johansson et al. (2014), https://doi.org/10.1007/s10994-014-5453-0;
    - otherwise, s = |y - ŷ|: ŷ ± q.

    It always contains the prediction, and no impossible value (`Head.possible`). A target with too
    few measured values has no interval: its ends are infinite.

    Standard deviations are multiplied by one factor for each target, which makes their root mean
    square that of the errors of the records (σ scaling, Levi et al. 2022,
    https://doi.org/10.3390/s22155540, section 3.3; difference: they maximise the likelihood, which
    a single deviation near zero decides). Members of an ensemble make similar errors, so the
    deviation between them is much smaller than their errors.

    Args:
        head: the head of the model.
        state: the result of `state`: `level`; `count`, the number of calibration records; and
            [num_targets] each, q as `quantile`, m as `smoothing`, and the factor as `std_scale`.

    Attributes:
        adds: the parts that it adds to predictions.
    """

    adds = ("lower", "upper")

    def __init__(self, head: Head, state: Mapping[str, Any]) -> None:
        self.head = head
        self.level = float(state["level"])
        self.count = int(state["count"])
        self.quantile: Tensor = state["quantile"]
        self.smoothing: Tensor = state["smoothing"]
        self.std_scale: Tensor = state["std_scale"]

    @staticmethod
    def fit(head: Head, level: float, predicted: Predicted, targets: Tensor) -> Intervals:
        """Fits intervals to some records.

        Args:
            head: the head of the model.
            level: the probability.
            predicted: the predictions of the model.
            targets: the result of the head's `target_rows`.
        """
        values, measured = head.compared(targets)
        zeros = torch.zeros(len(head.targets))
        state = {
            "level": level,
            "count": int(measured.any(1).sum()),
            "quantile": zeros,
            "smoothing": zeros,
            "std_scale": zeros + 1,
        }
        std = predicted.parts.get("std")
        if std is not None:
            errors = values - predicted.value
            scale = _each_target(measured, _scale_of, least_records(level), errors, std)
            state["std_scale"] = scale
            if "lower" not in predicted.parts:
                state["smoothing"] = _each_target(measured, _median, 1, std * scale.to(std))
        start = Intervals(head, state)
        lower, upper = start._ends(predicted)
        scores = torch.maximum(lower - values, values - upper) / start._scale(predicted)
        quantiles = [conformal_quantile(scores[m, i], level) for i, m in enumerate(measured.T)]
        return Intervals(head, {**state, "quantile": torch.tensor(quantiles)})

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint: plain values and tensors."""
        names = ("level", "count", "quantile", "smoothing", "std_scale")
        return {name: getattr(self, name) for name in names}

    @property
    def description(self) -> str:
        """A sentence for the report."""
        sentence = f"{self.level:.0%} intervals, calibrated on {self.count} validation records"
        finite = self.quantile.isfinite().tolist()
        absent = [name for name, has in zip(self.head.targets, finite, strict=True) if not has]
        sentence += f"; too few of them for {', '.join(absent)}" if absent else ""
        if (self.std_scale != 1).any():
            factors = ", ".join(f"{factor:.3g}" for factor in self.std_scale.tolist())
            sentence += f"; deviations, times {factors}, are as large as the errors there"
        return sentence

    def __call__(self, predicted: Predicted) -> Predicted:
        """Adds the ends of intervals to predictions, and scales their standard deviations."""
        value = predicted.value
        width = self.quantile.to(value) * self._scale(predicted)
        lower, upper = self._ends(predicted)
        # The record whose score is q is inside, despite rounding.
        width = width + _LAST_DIGITS * (width.abs() + value.abs())
        least, most = self.head.possible
        lower, upper = (lower - width).clamp(min=least), (upper + width).clamp(max=most)
        absent = self.quantile.isinf().to(value.device)
        lower = torch.minimum(lower, value).masked_fill(absent, -math.inf)
        upper = torch.maximum(upper, value).masked_fill(absent, math.inf)
        std = self._deviation(predicted)
        if std is not None:
            predicted = predicted.with_parts(std=std)
        return predicted.with_parts(lower=lower, upper=upper)

    def _ends(self, predicted: Predicted) -> tuple[Tensor, Tensor]:
        """The interval that the model predicts; the prediction twice if it predicts none."""
        lower, upper = (predicted.parts.get(name, predicted.value) for name in self.adds)
        return lower, upper

    def _scale(self, predicted: Predicted) -> Tensor:
        """[num_rows, num_targets] the factor of the quantile: σ + m, or 1."""
        std = self._deviation(predicted)
        if std is None or "lower" in predicted.parts:
            return torch.ones_like(predicted.value)
        return std + self.smoothing.to(predicted.value)

    def _deviation(self, predicted: Predicted) -> Tensor | None:
        """[num_rows, num_targets] the scaled σ; None without one."""
        if "std" not in predicted.parts:
            return None
        return predicted.parts["std"] * self.std_scale.to(predicted.value)


def least_records(level: float) -> int:
    """The number of scores for a finite conformal quantile: 9 for 0.9, 19 for 0.95."""
    return math.ceil(level / (1 - level) - 1e-9)


def conformal_quantile(scores: Tensor, level: float) -> float:
    """The score that a new one does not exceed with a probability of at least `level`.

    It is the ⌈(n + 1) level⌉-th smallest of n scores, see Angelopoulos and Bates (2021),
    https://arxiv.org/abs/2107.07511, section 1; infinite if there are too few. The only
    assumption is that the new record and the n come from one source, in any order.

    Shape:
        scores: [n]
    """
    rank = max(math.ceil((len(scores) + 1) * level - 1e-9), 1)
    if rank > len(scores):
        return math.inf
    return float(scores.double().kthvalue(rank).values)


def _each_target(
    measured: Tensor, statistic: Callable[..., float], least: int, *columns: Tensor
) -> Tensor:
    """[num_targets] a statistic over the measured rows of each target.

    It is 1 for fewer rows than `least`, and where it is not positive and finite.

    Args:
        measured: [num_rows, num_targets] bool.
        statistic: from the rows of the columns to a number.
        least: the smallest number of rows.
        *columns: [num_rows, num_targets] each.
    """
    numbers = []
    for target, rows in enumerate(measured.T):
        enough = int(rows.sum()) >= least
        number = statistic(*(c[rows, target].double() for c in columns)) if enough else math.nan
        numbers.append(number if 0 < number < math.inf else 1.0)
    return torch.tensor(numbers)


def _scale_of(errors: Tensor, std: Tensor) -> float:
    """The factor from the root mean square of the deviations to that of the errors."""
    return float((errors.square().mean() / std.square().mean()).sqrt())


def _median(values: Tensor) -> float:
    return float(values.median())
