"""EnsembleHead: the mean of several predictions, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphfold.layers.heads.head import Head
from graphfold.layers.uncertainty.outer_head import OuterHead


class EnsembleHead(OuterHead):
    """The head of several models, or of one model that is run several times.

    A prediction is the mean over the members, of values or of probabilities. Its standard deviation
    is that of the mixture of the members, Lakshminarayanan et al. (2017),
    https://arxiv.org/abs/1612.01474, section 2.4, where members with σ_m of their own have

        σ² = mean σ_m² + mean μ_m² - (mean μ_m)²

    and the first term is absent for others; of classes it is that of the probability. Ends of
    intervals are means, too; of heads with a task of their own all numbers are. The loss is the
    mean of the members' losses.

    Args:
        heads: the head of each member.

    Shape:
        rows: [num_rows, num_members, ...]
        returns: [num_rows, num_members, ...] raw outputs
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        inner = heads[0]
        is_known = inner.task in ("regression", "binary", "multiclass")
        super().__init__(inner, ("std",) if is_known and "std" not in inner.parts else ())
        self.heads = tuple(heads)

    def forward(self, rows: Tensor) -> Tensor:
        """The raw outputs of every member."""
        members = zip(self.heads, rows.unbind(1), strict=True)
        return torch.stack([head(own) for head, own in members], dim=1)

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        members = zip(self.heads, raw.unbind(1), strict=True)
        return torch.stack([head.losses(own, targets) for head, own in members]).mean(0)

    def decode(self, raw: Tensor) -> Tensor:
        """[num_rows, ..., num_parts] the means of the parts, and the standard deviation."""
        members = zip(self.heads, raw.unbind(1), strict=True)
        decoded = torch.stack([head.decode(own) for head, own in members])
        mean = decoded.mean(0)
        if "std" not in self.parts:
            return mean
        if len(self.inner.parts) == 1:
            return torch.stack([mean, decoded.std(0, correction=0)], dim=-1)
        variance = decoded[..., 0].var(0, correction=0).unsqueeze(-1)
        if "std" not in self.inner.parts:
            return torch.cat([mean, variance.sqrt()], dim=-1)
        at = self.inner.parts.index("std")
        total = variance + decoded[..., at : at + 1].square().mean(0)
        return torch.cat([mean[..., :at], total.sqrt(), mean[..., at + 1 :]], dim=-1)
