"""Running statistics: what batch normalisation keeps of the batches that it has seen."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from graphfold.batching.engine.compiled.tensors import TensorOf


@dataclass(frozen=True)
class RunningStatistics:
    """Those of one normalisation, see `torch.nn.BatchNorm1d`.

    Args:
        mean: the name of the mean over a group.
        variance: the name of the mean of squares, from which the former has been taken.
        running_mean: where the cell keeps a mean of means.
        running_variance: where it keeps a mean of unbiased variances.
        momentum: how much the last counts.
    """

    mean: str
    variance: str
    running_mean: TensorOf
    running_variance: TensorOf
    momentum: float

    def update(self, cell: nn.Module, mean: Tensor, variance: Tensor, num_rows: int) -> None:
        """Lets the last batch count; its mean and variance are of that many rows."""
        self.running_mean.find(cell).lerp_(mean, self.momentum)
        unbiased = variance * (num_rows / (num_rows - 1))
        self.running_variance.find(cell).lerp_(unbiased, self.momentum)
