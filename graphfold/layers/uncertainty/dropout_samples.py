"""DropoutSamples: a model that is run several times with dropout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from graphfold.batching import Batch
from graphfold.errors import ConfigError
from graphfold.layers.dropout import drops_out
from graphfold.layers.heads.head import Head
from graphfold.layers.model import Model
from graphfold.layers.uncertainty.ensemble_head import EnsembleHead
from graphfold.layers.uncertainty.outer_model import OuterModel

#: Whatever the process has drawn before, a batch is predicted with the same masks.
_SEED = 0


class DropoutSamples(OuterModel):
    """Predicts with the mean and the deviation of several runs of a model with its dropout on.

    Monte Carlo dropout, Gal and Ghahramani (2016), https://arxiv.org/abs/1506.02142. All else, such
    as batch normalisation, is as in evaluation. The masks of a batch are the same every time.

    Args:
        inner: the model; in an ensemble every member is run so often.
        num_samples: how often it is run.
        correction: what the divisor of deviations lacks of that, see `EnsembleHead`.

    Raises:
        ConfigError: if nothing in the model drops out.
    """

    def __init__(self, inner: Model, num_samples: int, correction: int = 1) -> None:
        super().__init__(inner)
        self.draws = True
        self.num_samples = num_samples
        self.correction = correction
        if not self._dropouts():
            raise ConfigError(
                "dropout_samples runs a model with its dropout on, but nothing in this one drops "
                "out. Train it with model.dropout or model.head.dropout above 0, or leave "
                "dropout_samples out."
            )

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The head of all samples."""
        return EnsembleHead([self.inner.head] * self.num_samples, self.correction)

    def forward(self, batch: Batch) -> Tensor:
        """[num_rows, num_samples, ...] the raw outputs of all samples."""
        device = batch.dag.op_type.device
        devices = [device] if device.type == "cuda" else []
        with self._dropping(), torch.random.fork_rng(devices):
            torch.manual_seed(_SEED)
            return torch.stack([self.inner(batch) for _ in range(self.num_samples)], dim=1)

    def _dropouts(self) -> list[nn.Module]:
        return list(filter(drops_out, self.inner.modules()))

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Has dropout on, and nothing else of what training has."""
        modes = [(module, module.training) for module in self._dropouts()]
        for module, _ in modes:
            module.training = True
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
