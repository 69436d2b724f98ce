"""EnsembleHead: the mean of several predictions, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphfold.layers.heads.head import Head
from graphfold.layers.heads.numbers import LIMITS
from graphfold.layers.heads.target_prediction import ClassNames, Predictions
from graphfold.layers.uncertainty.outer_head import OuterHead


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

    def predictions(self, prediction: Tensor, names: ClassNames) -> Predictions:
        """As the inner head, with the added parts; "limit" is "low", "high" or None."""
        found = super().predictions(prediction, names)
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
