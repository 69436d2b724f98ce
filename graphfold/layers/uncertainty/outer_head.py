"""Heads around heads, which tell more of each target.

`OuterHead` is their base, `EnsembleHead` the mean of several predictions and their spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphfold.dag import Column, TypedDAG
from graphfold.layers.heads.eval_rows import EvalRows, MetricInputs
from graphfold.layers.heads.head import Head, Predictions
from graphfold.layers.heads.regression import LIMITS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class OuterHead(Head):
    """Base of heads that add parts to the predictions of another one.

    Everything else is as the inner head has it. The parts of the inner head come first, then those
    that are added, in the last dimension of what `decode` gives.

    Args:
        inner: the head inside.
        added: the parts that the inner one has not.
    """

    def __init__(self, inner: Head, added: Sequence[str]) -> None:
        nn.Module.__init__(self)
        self.inner = inner
        self.level = inner.level
        self.columns = inner.columns
        self.task = inner.task
        self.losses_may_be_negative = inner.losses_may_be_negative
        self.metrics_by_target = inner.metrics_by_target
        self.pairs = inner.pairs
        self.parts = (*inner.parts, *added)
        self.num_classes: int | None = getattr(inner, "num_classes", None)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of the inner head."""
        return self.inner.metrics

    @property
    def monitor(self) -> str | None:
        """That of the inner head."""
        return self.inner.monitor

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """Those of the inner head, then one for each further part."""
        added = self.parts[len(self.inner.parts) :]
        return tuple(dict.fromkeys((*self.inner.extra_columns, *added)))

    @classmethod
    def refuses(cls, column: Column) -> str | None:
        return None  # the inner head has been asked

    def forward(self, rows: Tensor) -> Tensor:
        """The raw outputs of the inner head."""
        raw: Tensor = self.inner(rows)
        return raw

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        return self.inner.losses(raw, targets)

    def inner_part(self, prediction: Tensor) -> Tensor:
        """The part of a prediction that the inner head's `decode` gave."""
        if len(self.parts) == len(self.inner.parts):
            return prediction
        count = len(self.inner.parts)
        return prediction[..., 0] if count == 1 else prediction[..., :count]

    def learned(self, values: Tensor) -> Tensor:
        return self.inner.learned(values)

    def from_learned(self, values: Tensor) -> Tensor:
        return self.inner.from_learned(values)

    def learned_deviation(self, values: Tensor, std: Tensor) -> Tensor:
        return self.inner.learned_deviation(values, std)

    @property
    def possible(self) -> tuple[float, float]:
        """That of the inner head."""
        return self.inner.possible

    def target_rows(self, dag: TypedDAG) -> Tensor:
        return self.inner.target_rows(dag)

    def row_graph(self, dag: TypedDAG) -> Tensor:
        return self.inner.row_graph(dag)

    def measured(self, targets: Tensor) -> Tensor:
        return self.inner.measured(targets)

    def compared(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.compared(targets)

    def metric_inputs(self, prediction: Tensor, targets: Tensor) -> MetricInputs:
        return self.inner.metric_inputs(self.inner_part(prediction), targets)

    def confusion(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return self.inner.confusion(self.inner_part(prediction), targets)

    def labels(self, column: Column) -> Sequence[Any]:
        return self.inner.labels(column)

    def predictions(self, prediction: Tensor) -> Predictions:
        found = self.inner.predictions(self.inner_part(prediction))
        added = self.parts[len(self.inner.parts) :]
        if not added:
            return found
        more = self._of_targets(prediction)[..., -len(added) :].tolist()
        return [
            {
                name: told.with_extra(dict(zip(added, values, strict=True)))
                for (name, told), values in zip(row.items(), own, strict=True)
            }
            for row, own in zip(found, more, strict=True)
        ]

    def measured_values(self, targets: Tensor) -> list[dict[str, Any]]:
        return self.inner.measured_values(targets)

    def plot(self, rows: EvalRows) -> Figure | None:
        if self.task == "regression":
            return super().plot(rows)
        return self.inner.plot(replace(rows, prediction=self.inner_part(rows.prediction)))

    def _of_targets(self, prediction: Tensor) -> Tensor:
        """[num_rows, num_targets, num_parts]; of several classes the parts of the likeliest."""
        if self.task != "multiclass":
            return prediction
        best = prediction[..., 0].argmax(1)
        return prediction[torch.arange(len(best)), best].unsqueeze(1)


class EnsembleHead(OuterHead):
    """The head of several models, or of one model that is run several times.

    A prediction is the mean over the members, of values or of probabilities. Its standard deviation
    is that of the mixture of the members, Lakshminarayanan et al. (2017),
    https://arxiv.org/abs/1612.01474, section 2.4, where members with σ_m of their own have

        σ² = mean σ_m² + Σ (μ_m - mean μ)² / (M - 1)

    and the first term is absent for others; of classes it is that of the probability. Differences
    from the paper: M - 1 in place of M, for members are a few out of many that might have been
    trained; and μ_m are the numbers before they are cut off at the limits of predictions, for at a
    limit members agree that know nothing. Ends of intervals are means, too; of heads with a task of
    their own all numbers are. "limit" is the side, -1 or 1, to which the mean would move if no
    member were cut off, or 0. The loss is the mean of the members' losses.

    Args:
        heads: the head of each member.
        correction: what is taken from M: 1, or 0 as earlier versions did.

    Shape:
        rows: [num_rows, num_members, ...]
        returns: [num_rows, num_members, ...] raw outputs
    """

    def __init__(self, heads: Sequence[Head], correction: int = 1) -> None:
        inner = heads[0]
        is_known = inner.task in ("regression", "binary", "multiclass")
        added = ["std"] if is_known else []
        added += ["limit"] if getattr(inner, "has_limits", False) else []
        super().__init__(inner, [name for name in added if name not in inner.parts])
        self.has_limits = "limit" in self.parts
        self.heads = tuple(heads)
        self.correction = min(correction, len(heads) - 1)  # one member is at no distance

    def forward(self, rows: Tensor) -> Tensor:
        """The raw outputs of every member."""
        members = zip(self.heads, rows.unbind(1), strict=True)
        return torch.stack([head(own) for head, own in members], dim=1)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        members = zip(self.heads, raw.unbind(1), strict=True)
        return torch.stack([head.losses(own, targets) for head, own in members]).mean(0)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, ..., num_parts] the means of the parts, and the standard deviation."""
        return self._mixture(self._each(raw, "decode"), raw)

    def decode_unlimited(self, raw: Tensor) -> Tensor:
        """The same of numbers that are not cut off."""
        return self._mixture(self._each(raw, "decode_unlimited"), raw)

    def predictions(self, prediction: Tensor) -> Predictions:
        """As the inner head, with the added parts; "limit" is "low", "high" or None."""
        found = super().predictions(prediction)
        if not self.has_limits:
            return found
        return [
            {
                name: told.with_extra({"limit": LIMITS[int(told.extra["limit"])]})
                for name, told in row.items()
            }
            for row in found
        ]

    def _mixture(self, decoded: Tensor, raw: Tensor) -> Tensor:
        """Means of what the members give, [num_members, num_rows, ...], with their deviation."""
        if "std" not in self.parts:
            return decoded.mean(0)
        is_number = self.task == "regression"
        unlimited = self._each(raw, "decode_unlimited") if is_number else decoded
        if len(self.inner.parts) == 1:
            decoded, unlimited = decoded.unsqueeze(-1), unlimited.unsqueeze(-1)
        parts = dict(zip(self.inner.parts, decoded.mean(0).unbind(-1), strict=True))
        values = unlimited[..., 0]
        variance = values.var(0, correction=self.correction)
        if "std" in self.inner.parts:
            own = decoded[..., self.inner.parts.index("std")]
            variance = variance + own.square().mean(0)
        parts["std"] = variance.sqrt()
        if self.has_limits:  # on which side members were cut off, if any was
            parts["limit"] = (values.mean(0) - parts["pred"]).sign().nan_to_num()
        return torch.stack([parts[name] for name in self.parts], dim=-1)

    def _each(self, raw: Tensor, method: str) -> Tensor:
        """[num_members, num_rows, ...] what a method of each member's head gives."""
        members = zip(self.heads, raw.unbind(1), strict=True)
        return torch.stack([getattr(head, method)(own) for head, own in members])
