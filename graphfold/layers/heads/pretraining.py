"""PretrainingHead: many numbers per row, some of which count in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphfold.dag import Column, Schema
from graphfold.errors import ConfigError
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.heads.regression import RegressionHead

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PretrainingHead(RegressionHead):
    """Predicts many related numbers, such as descriptors, a random part of them at a time.

    As in the pre-training of Burns et al. (2025), https://arxiv.org/abs/2506.15792: targets are
    standardised and cut off at `clip` standard deviations, and in training each measured value
    counts with probability `share`, drawn anew in every step. The loss of a row is the squared
    error of those that count, over the number that is expected to; elsewhere all of them count.

    The arguments are those of `NumberHead`, without weights of targets, and:

    Args:
        share: the part of the targets that counts in a step of training.
        clip: the largest standardised target.

    Shape:
        rows: [num_rows, input_size]
        returns: [num_rows, num_targets] standardised predictions

    Raises:
        ConfigError: as `RegressionHead`, and if `share` is not above 0 and at most 1, or `clip` is
            not positive.
    """

    metrics_by_target = False

    def __init__(
        self,
        input_size: int,
        schema: Schema,
        level: str = "graph",
        targets: Sequence[str] | None = None,
        scalers: Mapping[str, tuple[float, ...]] | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
        share: float = 0.15,
        clip: float = 6.0,
    ) -> None:
        super().__init__(
            input_size, schema, level, targets, scalers, hidden_size=hidden_size, dropout=dropout
        )
        if not 0 < share <= 1 or clip <= 0:
            raise ConfigError(
                f"PretrainingHead has share={share} and clip={clip}. Give a share above 0 and at "
                "most 1, and a clip above 0."
            )
        self.share = share
        self.clip = clip

    @classmethod
    def suits(cls, columns: Sequence[Column], level: str, pairs: bool) -> bool:
        return False

    def plot(self, rows: EvalRows) -> Figure | None:
        """Nothing: so many pictures help nobody."""
        return None

    def losses(self, raw: Tensor, targets: Tensor) -> Tensor:
        counts, expected = self.measured(targets), float(raw.shape[1])
        if self.training:
            counts = counts & (torch.rand_like(raw) < self.share)
            expected = raw.shape[1] * self.share
        wanted = self.standardise(targets.to(raw.dtype)).clamp(-self.clip, self.clip)
        wanted = torch.where(counts, wanted, raw.detach())
        return (raw - wanted).square().sum(1) / expected
