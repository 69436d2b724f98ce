"""IntervalHead: conformal intervals around the numbers that another head predicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphfold.layers.heads.eval_rows import MetricInputs
from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.conformal import conformal_quantile, least_records
from graphfold.layers.uncertainty.outer_head import OuterHead

#: The ends of an interval among the parts of a prediction.
ENDS = ("lower", "upper")

#: What rounding of a float32 may take away, as a share.
_LAST_DIGITS = 5e-7


class IntervalHead(OuterHead):
    """Intervals that hold the true number with a probability of at least `level`.

    Split conformal prediction, in the space in which the inner head learns (`Head.learned`): of a
    head that learns logarithms an interval is a factor around the prediction. With q the conformal
    quantile of the scores s of the records that it was fitted on, the interval around a prediction
    ŷ is

    - of a head with an interval of its own [a, b], s = max(a - y, y - b): [a - q, b + q], equation
      4 of Romano et al. (2019), https://arxiv.org/abs/1905.03222;
    - of a head with a standard deviation σ, s = |y - ŷ| / (σ + m): ŷ ± q (σ + m), where m, the
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
        inner: the head inside.
        state: what `state` gave: `level`; `count`, how many records it was fitted on; and for each
            target, [num_targets] each, `counts` of them, q as `quantile`, m as `smoothing`, and the
            factor as `std_scale`. States of earlier versions have neither `counts` nor `std_scale`:
            their deviations are as they are, and their intervals are in the targets' units.
    """

    quantile: Tensor
    smoothing: Tensor
    std_scale: Tensor

    def __init__(self, inner: Head, state: Mapping[str, Any]) -> None:
        super().__init__(inner, [name for name in ENDS if name not in inner.parts])
        self.share = float(state["level"])
        self.count = int(state["count"])
        self.is_earlier = "std_scale" not in state
        each = torch.ones(len(inner.targets))
        self.counts = state.get("counts", each.long() * self.count)
        self.register_buffer("quantile", state["quantile"])
        self.register_buffer("smoothing", state["smoothing"])
        self.register_buffer("std_scale", state.get("std_scale", each))

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
        state = {
            "level": level,
            "count": int(known.any(1).sum()),
            "counts": known.sum(0),
            "quantile": nothing,
            "smoothing": nothing,
            "std_scale": nothing + 1,
        }
        start = IntervalHead(inner, state)
        wanted, std = inner.learned(values), start.deviation(prediction)
        if std is not None:
            errors = wanted - inner.learned(inner.values(prediction))
            least = least_records(level)
            state["std_scale"] = _each_target(known, _scale_of, least, 1.0, errors, std)
            start = IntervalHead(inner, state)
        std = start.deviation(prediction)
        if std is not None and start.is_scaled:
            state["smoothing"] = _each_target(known, _median, 1, 1.0, std)
            start = IntervalHead(inner, state)
        lower, upper = start.learned_ends(prediction)
        scores = torch.maximum(lower - wanted, wanted - upper) / start.scale(prediction)
        quantiles = [conformal_quantile(scores[k, i], level) for i, k in enumerate(known.T)]
        return IntervalHead(inner, {**state, "quantile": torch.tensor(quantiles)})

    def state(self) -> dict[str, Any]:
        """Plain values and tensors."""
        facts = {"level": self.share, "count": self.count}
        tensors = {"quantile": self.quantile.cpu(), "smoothing": self.smoothing.cpu()}
        if not self.is_earlier:
            tensors |= {"std_scale": self.std_scale.cpu(), "counts": self.counts}
        return facts | tensors

    @property
    def description(self) -> str:
        """A sentence for the report."""
        sentence = f"{self.share:.0%} intervals, calibrated on {self.count} validation records"
        absent = [
            name for name, has in zip(self.targets, self.has_interval, strict=True) if not has
        ]
        sentence += f"; too few of them for {', '.join(absent)}" if absent else ""
        if "std" in self.parts and not self.is_earlier:
            factors = ", ".join(f"{factor:.3g}" for factor in self.std_scale.tolist())
            sentence += f"; deviations, times {factors}, are as large as the errors there"
        return sentence

    @property
    def has_interval(self) -> list[bool]:
        """True for each target that has one."""
        found: list[bool] = self.quantile.isfinite().tolist()
        return found

    @property
    def is_scaled(self) -> bool:
        """True if intervals are as wide as deviations are large."""
        return "std" in self.inner.parts and "lower" not in self.inner.parts

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, num_targets, num_parts] the parts of the inner head, lower and upper end."""
        prediction = self.inner.decode(raw)
        value = self.inner.values(prediction)
        width = self.quantile.to(prediction) * self.scale(prediction)
        lower, upper = self.learned_ends(prediction)
        parts = self._inner_parts(prediction)
        if "std" in parts:
            parts["std"] = parts["std"] * self.std_scale.to(prediction)
        if self.is_earlier:
            lower, upper = lower - width, upper + width
        else:
            # The record whose score is q is inside, whatever its last digit.
            width = width + _LAST_DIGITS * (width.abs() + self.inner.learned(value).abs())
            least, most = self.inner.possible
            lower = self.inner.from_learned(lower - width).clamp(min=least)
            upper = self.inner.from_learned(upper + width).clamp(max=most)
        parts["lower"], parts["upper"] = torch.minimum(lower, value), torch.maximum(upper, value)
        return torch.stack([parts[name] for name in self.parts], dim=-1)

    def uncertainty_inputs(self, task: str, prediction: Tensor, targets: Tensor) -> MetricInputs:
        """As for all heads; of a target without intervals, they have no rows."""
        found = dict(super().uncertainty_inputs(task, prediction, targets))
        if task == "interval":
            for name, has in zip(self.targets, self.has_interval, strict=True):
                predicted, target = found[name]
                found[name] = (predicted, target) if has else (predicted[:0], target[:0])
        return found

    def learned_ends(self, prediction: Tensor) -> tuple[Tensor, Tensor]:
        """The inner head's interval, as learnt; from the prediction to itself if it has none."""
        parts = self._inner_parts(prediction)
        lower, upper = parts.get("lower", parts["pred"]), parts.get("upper", parts["pred"])
        if self.is_earlier:
            return lower, upper
        return self.inner.learned(lower), self.inner.learned(upper)

    def scale(self, prediction: Tensor) -> Tensor:
        """[num_rows, num_targets] what a score is multiplied with: σ + m, or 1."""
        std = self.deviation(prediction)
        if std is None or not self.is_scaled:
            return torch.ones_like(self.inner.values(prediction))
        return std + self.smoothing.to(prediction)

    def deviation(self, prediction: Tensor) -> Tensor | None:
        """[num_rows, num_targets] σ in the learned space, scaled; None if there is none."""
        parts = self._inner_parts(prediction)
        if "std" not in parts:
            return None
        std = parts["std"] * self.std_scale.to(prediction)
        return std if self.is_earlier else self.inner.learned_deviation(parts["pred"], std)

    def _inner_parts(self, prediction: Tensor) -> dict[str, Tensor]:
        """Name of a part of the inner head -> [num_rows, num_targets]."""
        parts = prediction.unbind(-1) if len(self.inner.parts) > 1 else (prediction,)
        return dict(zip(self.inner.parts, parts, strict=True))


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
