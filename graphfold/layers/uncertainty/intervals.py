"""Intervals: conformal intervals around numbers, fitted to held-out predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import Head

#: What rounding of a float32 may take away, as a share.
_LAST_DIGITS = 5e-7


class Intervals:
    """Puts around numbers the intervals that hold the true one with a probability of `level`.

    Split conformal prediction. With q the conformal quantile of the scores s of the records that it
    was fitted on, the interval around a prediction ŷ is

    - of predictions with an interval of their own [a, b], s = max(a - y, y - b): [a - q, b + q],
      equation 4 of Romano et al. (2019), https://arxiv.org/abs/1905.03222;
    - of predictions with a standard deviation σ, s = |y - ŷ| / (σ + m): ŷ ± q (σ + m), where m, the
      median of σ over those records, keeps small deviations from making large scores, Johansson
      et al. (2014), https://doi.org/10.1007/s10994-014-5453-0;
    - else, s = |y - ŷ|: ŷ ± q.

    It always holds the prediction, and nothing that the target cannot be (`Head.possible`). A
    target with too few measured values has no interval: its ends are infinite.

    Standard deviations are multiplied by one factor for each target, with which their root mean
    square is that of the errors of those records (σ scaling, Levi et al. 2022,
    https://doi.org/10.3390/s22155540, section 3.3; difference: they maximise the likelihood, which
    a single deviation near zero decides). Members of an ensemble err alike, so the deviation
    between them is much smaller than their errors.

    Args:
        head: the head of the model.
        state: what `state` gave: `level`; `count`, how many records it was fitted on; and for each
            target, [num_targets] each, q as `quantile`, m as `smoothing`, and the
            factor as `std_scale`.

    Attributes:
        adds: the parts that predictions get.
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
        """The intervals whose quantiles are those of some records.

        Args:
            head: the head of the model.
            level: the probability.
            predicted: what the model predicted.
            targets: what the head's `target_rows` gave.
        """
        values, known = head.compared(targets)
        nothing = torch.zeros(len(head.targets))
        state = {
            "level": level,
            "count": int(known.any(1).sum()),
            "quantile": nothing,
            "smoothing": nothing,
            "std_scale": nothing + 1,
        }
        start = Intervals(head, state)
        std = start._deviation(predicted)
        if std is not None:
            errors = values - predicted.value
            least = least_records(level)
            state["std_scale"] = _each_target(known, _scale_of, least, 1.0, errors, std)
            start = Intervals(head, state)
        std = start._deviation(predicted)
        if std is not None and "lower" not in predicted.parts:
            state["smoothing"] = _each_target(known, _median, 1, 1.0, std)
            start = Intervals(head, state)
        lower, upper = start._own_ends(predicted)
        scores = torch.maximum(lower - values, values - upper) / start._scale(predicted)
        quantiles = [conformal_quantile(scores[k, i], level) for i, k in enumerate(known.T)]
        return Intervals(head, {**state, "quantile": torch.tensor(quantiles)})

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        names = ("level", "count", "quantile", "smoothing", "std_scale")
        return {name: getattr(self, name) for name in names}

    @property
    def description(self) -> str:
        """A sentence for the report."""
        sentence = f"{self.level:.0%} intervals, calibrated on {self.count} validation records"
        there = self.quantile.isfinite().tolist()
        absent = [name for name, has in zip(self.head.targets, there, strict=True) if not has]
        sentence += f"; too few of them for {', '.join(absent)}" if absent else ""
        if (self.std_scale != 1).any():
            factors = ", ".join(f"{factor:.3g}" for factor in self.std_scale.tolist())
            sentence += f"; deviations, times {factors}, are as large as the errors there"
        return sentence

    def __call__(self, predicted: Predicted) -> Predicted:
        """The same numbers with lower and upper ends, and with deviations as large as errors."""
        value = predicted.value
        width = self.quantile.to(value) * self._scale(predicted)
        lower, upper = self._own_ends(predicted)
        # The record whose score is q is inside, whatever its last digit.
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

    def _own_ends(self, predicted: Predicted) -> tuple[Tensor, Tensor]:
        """The model's own interval; from the prediction to itself if it has none."""
        lower, upper = (predicted.parts.get(name, predicted.value) for name in self.adds)
        return lower, upper

    def _scale(self, predicted: Predicted) -> Tensor:
        """[num_rows, num_targets] what a score is multiplied with: σ + m, or 1."""
        std = self._deviation(predicted)
        if std is None or "lower" in predicted.parts:
            return torch.ones_like(predicted.value)
        return std + self.smoothing.to(predicted.value)

    def _deviation(self, predicted: Predicted) -> Tensor | None:
        """[num_rows, num_targets] σ, scaled; None if there is none."""
        if "std" not in predicted.parts:
            return None
        return predicted.parts["std"] * self.std_scale.to(predicted.value)


def least_records(level: float) -> int:
    """The number of scores that a finite conformal quantile takes: 9 for 0.9, 19 for 0.95."""
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
    known: Tensor, statistic: Callable[..., float], least: int, otherwise: float, *columns: Tensor
) -> Tensor:
    """[num_targets] a positive number of the measured rows of some columns.

    Args:
        known: [num_rows, num_targets] what is measured.
        statistic: computes it from the rows of each column.
        least: how many rows it takes.
        otherwise: what stands in its place where there are fewer, or it is not positive.
        *columns: [num_rows, num_targets] each.
    """
    found = []
    for number, rows in enumerate(known.T):
        own = [column[rows, number].double() for column in columns]
        value = statistic(*own) if int(rows.sum()) >= least else math.nan
        found.append(value if 0 < value < math.inf else otherwise)
    return torch.tensor(found)


def _scale_of(errors: Tensor, std: Tensor) -> float:
    """The factor that makes deviations as large as errors, in the root of their mean square."""
    return float((errors.square().mean() / std.square().mean()).sqrt())


def _median(values: Tensor) -> float:
    return float(values.median())
