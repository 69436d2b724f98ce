"""IntervalHead: conformal intervals around the numbers that another head predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.conformal import conformal_quantile
from graphfold.layers.uncertainty.outer_head import OuterHead

#: The ends of an interval among the parts of a prediction.
ENDS = ("lower", "upper")


class IntervalHead(OuterHead):
    """Intervals that hold the true number with a probability of at least `level`.

    Split conformal prediction. With q the conformal quantile of the scores s of the records that it
    was fitted on, the interval around a prediction ŷ is

    - of a head with an interval of its own [a, b], s = max(a - y, y - b): [a - q, b + q], equation
      4 of Romano et al. (2019), https://arxiv.org/abs/1905.03222;
    - of a head with a standard deviation σ, s = |y - ŷ| / (σ + m): ŷ ± q (σ + m), where m, the
      median of σ over those records, keeps small deviations from making large scores, Johansson
      et al. (2014), https://doi.org/10.1007/s10994-014-5453-0;
    - else, s = |y - ŷ|: ŷ ± q.

    It always holds the prediction. A target with too few measured values has no interval: its ends
    are infinite.

    Args:
        inner: the head inside.
        level: the probability.
        quantile: [num_targets] q.
        smoothing: [num_targets] m; 0 where it is not needed.
        count: how many records it was fitted on.
    """

    def __init__(
        self, inner: Head, level: float, quantile: Tensor, smoothing: Tensor, count: int
    ) -> None:
        super().__init__(inner, [name for name in ENDS if name not in inner.parts])
        self.share = level
        self.count = count
        self.register_buffer("quantile", quantile)
        self.register_buffer("smoothing", smoothing)
        self.quantile: Tensor
        self.smoothing: Tensor

    @staticmethod
    def fit(inner: Head, level: float, prediction: Tensor, targets: Tensor) -> IntervalHead:
        """The head whose quantiles are those of some records.

        Args:
            inner: the head inside.
            level: the probability.
            prediction: what its `decode` gave.
            targets: what its `target_rows` gave.
        """
        values, known = inner.compared(targets)
        nothing = torch.zeros(len(inner.targets))
        start = IntervalHead(inner, level, nothing, _median_deviation(inner, prediction, known), 0)
        lower, upper = start.ends(prediction)
        scale = start.scale(prediction)
        scores = torch.maximum(lower - values, values - upper) / scale
        quantiles = [conformal_quantile(scores[k, i], level) for i, k in enumerate(known.T)]
        count = int(known.any(1).sum())
        return IntervalHead(inner, level, torch.tensor(quantiles), start.smoothing, count)

    @staticmethod
    def of(inner: Head, state: Mapping[str, Any]) -> IntervalHead:
        """The head that `state` describes."""
        level, count = float(state["level"]), int(state["count"])
        return IntervalHead(inner, level, state["quantile"], state["smoothing"], count)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        facts = {"level": self.share, "count": self.count}
        return {**facts, "quantile": self.quantile.cpu(), "smoothing": self.smoothing.cpu()}

    @property
    def description(self) -> str:
        """A sentence for the report."""
        sentence = f"{self.share:.0%} intervals, calibrated on {self.count} validation records"
        absent = [
            name
            for name, q in zip(self.targets, self.quantile.tolist(), strict=True)
            if not math.isfinite(q)
        ]
        return sentence + (f"; too few of them for {', '.join(absent)}" if absent else "")

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, num_parts] the parts of the inner head, lower and upper end."""
        prediction = self.inner.decode(raw)
        lower, upper = self.ends(prediction)
        value = self.inner.values(prediction)
        width = self.quantile.to(prediction) * self.scale(prediction)
        parts = dict(zip(self.inner.parts, self._parts_of(prediction), strict=True))
        parts["lower"] = torch.minimum(lower - width, value)
        parts["upper"] = torch.maximum(upper + width, value)
        return torch.stack([parts[name] for name in self.parts], dim=-1)

    def ends(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """The interval of the inner head; from the prediction to itself where it has none."""
        parts = dict(zip(self.inner.parts, self._parts_of(prediction), strict=True))
        return parts.get("lower", parts["pred"]), parts.get("upper", parts["pred"])

    def scale(self, prediction: Tensor) -> Tensor:
        """[num_rows, num_targets] what a score is multiplied with: σ + m, or 1."""
        parts = dict(zip(self.inner.parts, self._parts_of(prediction), strict=True))
        if not _is_scaled(self.inner):
            return torch.ones_like(parts["pred"])
        return parts["std"] + self.smoothing.to(prediction)

    def _parts_of(self, prediction: Tensor) -> tuple[Tensor, ...]:
        return prediction.unbind(-1) if len(self.inner.parts) > 1 else (prediction,)


def _is_scaled(head: Head) -> bool:
    return "std" in head.parts and "lower" not in head.parts


def _median_deviation(head: Head, prediction: Tensor, known: Tensor) -> Tensor:
    """[num_targets] the median deviation of the measured records; 1 where all are zero."""
    count = len(head.targets)
    if not _is_scaled(head):
        return torch.zeros(count)
    std = prediction[..., head.parts.index("std")]
    medians = [std[known[:, i], i].median() if known[:, i].any() else 1.0 for i in range(count)]
    found = torch.tensor([float(median) for median in medians])
    return torch.where(found > 0, found, 1.0)
