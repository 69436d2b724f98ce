"""AverageWeights: a running mean of the weights is what a run validates and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn

from graphfold._torch import move_towards
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
        self._means: list[Tensor] = []
        self._weights: list[Tensor] = []
        super().__init__(multi_avg_fn=self.add)

    def add(self, mean: Sequence[Tensor], weights: Sequence[Tensor], num_averaged: Tensor) -> None:
        """Moves the means, in place, towards the weights."""
        number = int(num_averaged)
        share = 1 - min(self.decay, (1 + number) / (10 + number))
        moving: tuple[list[Tensor], list[Tensor]] = [], []
        for own, new in zip(mean, weights, strict=True):
            if own.is_floating_point():
                moving[0].append(own)
                moving[1].append(new)
            else:  # a counter has no mean
                own.copy_(new)
        if moving[0]:
            move_towards(*moving, share)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Makes the mean, in single precision at least: in less, small steps would be lost."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        assert self._average_model is not None
        for mean in _tensors(self._average_model.module):
            if mean.is_floating_point():
                mean.data = mean.data.to(torch.promote_types(mean.dtype, torch.float32))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Finds means and weights once: that takes longer than to move the means."""
        assert self._average_model is not None
        self._means = _numbers(self._average_model.module)
        self._weights = _numbers(pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        """Moves the means after a step; after the first one they become the weights."""
        assert self._average_model is not None
        if not self._average_model.n_averaged:
            super().on_train_batch_end(trainer, pl_module, *rest)
        elif trainer.global_step > self._latest_update_step:
            weights = map(Tensor.to, self._weights, self._means)
            self.add(self._means, list(weights), self._average_model.n_averaged)
            self._average_model.n_averaged += 1
            self._latest_update_step = trainer.global_step


def _numbers(module: nn.Module) -> list[Tensor]:
    """All parameters and buffers, as tensors that share their memory."""
    return [tensor.detach() for tensor in _tensors(module)]


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return chain(module.parameters(), module.buffers())


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
