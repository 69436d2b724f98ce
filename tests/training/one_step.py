"""One step of plain descent over a training part, which shows the gradient."""

from __future__ import annotations

from typing import TypeAlias

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from graphfold.datasets.loading.data_module import DataModule
from graphfold.training.config.compose import compose
from graphfold.training.loop.fit import Loaders
from graphfold.training.loop.learner import make_learner
from graphfold.training.process.quiet import quiet_lightning

#: How the parameters moved, which is minus the gradient, and the loss.
Step: TypeAlias = tuple[Tensor, float]

#: Descent at rate 1 over all records at once, read by this process.
DESCENT = (
    *("optimizer=sgd", "optimizer.momentum=0.0", "optimizer.lr=1.0", "lr_scheduler=constant"),
    *("data.batch_size=1000", "data.num_workers=0"),
)


def take_step(*overrides: str, strategy: str = "auto", devices: int = 1) -> Step:
    """An epoch in float64, which is one step unless the overrides say otherwise.

    Args:
        *overrides: of the config; those that come last count.
        strategy: how Lightning's trainer begins processes.
        devices: how many processes share the records.
    """
    config = compose([*DESCENT, *overrides]).config
    data = DataModule(**config["data"])
    data.prepare()
    learner, _ = make_learner(config, data)
    learner.double()
    before = parameters_to_vector(learner.parameters()).detach().clone()
    with quiet_lightning():
        trainer = Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
            strategy=strategy, devices=devices, use_distributed_sampler=False,
        )  # fmt: skip
        trainer.fit(learner, datamodule=Loaders(data, {"train": False, "val": False}))
    moved = parameters_to_vector(learner.parameters()).detach() - before
    # What other processes have added up comes back as a logged float32 alone.
    logged = float(trainer.callback_metrics["train/loss"])
    return moved, learner.running_loss if devices == 1 else logged


def both_agree(first: Step, second: Step) -> None:
    """Two steps are the same to 1e-6, and not nothing."""
    assert second[0].abs().max() > 1e-3
    assert first[1] == pytest.approx(second[1], abs=1e-6, rel=1e-6)
    torch.testing.assert_close(first[0], second[0], atol=1e-6, rtol=0)
