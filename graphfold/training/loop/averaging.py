"""AverageWeights: a running mean of the weights is what a run validates and keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging

from graphfold.errors import ConfigError


class AverageWeights(WeightAveraging):
    """The exponential mean of the weights over the steps, validated and kept in their place.

    After step n the mean moves by 1 - d towards the weights, as ExponentialMovingAverage of
    TensorFlow does with a number of updates:

        d = min(decay, (1 + n) / (10 + n))

    so early weights are soon forgotten, and the first epochs are validated like the last. Training
    goes on from the weights themselves; last.ckpt keeps both.

    Args:
        decay: what stays of the mean in a step, once there have been many.

    Raises:
        ConfigError: if `decay` is not between 0 and 1.
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"decay={decay} leaves no mean. Use a number between 0 and 1.")
        self.decay = decay
        super().__init__(multi_avg_fn=self.add)

    def add(self, mean: Any, weights: Any, num_averaged: Any) -> None:
        """Moves the means, in place, towards the weights."""
        number = int(num_averaged)
        share = 1 - min(self.decay, (1 + number) / (10 + number))
        for own, new in zip(mean, weights, strict=True):
            if own.is_floating_point():
                own.lerp_(new, share)
            else:  # a counter has no mean
                own.copy_(new)


@contextmanager
def averaged(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """Puts the mean of the weights in their place for the block, if a callback keeps one.

    Lightning asks no callback when it saves weights alone, so a checkpoint of them needs it.
    """
    keepers = [item for item in trainer.callbacks if isinstance(item, AverageWeights)]  # type: ignore[attr-defined]
    for keeper in keepers:
        keeper._swap_models(module)
    try:
        yield
    finally:
        for keeper in keepers:
            keeper._swap_models(module)
