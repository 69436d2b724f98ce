"""One step of plain descent over a training part, which shows the gradient."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector
from training.launches import in_two_processes

from graphfold.datasets.data_module import DataModule
from graphfold.recipe import make_loop
from graphfold.training.config.build_model import decide
from graphfold.training.config.compose import compose
from graphfold.training.loop.loop import Loop
from graphfold.training.process.ranks import joined
from graphfold.training.run.initial_weights import make_model

#: How the parameters moved, which is minus the gradient, and the loss.
Step: TypeAlias = tuple[Tensor, float]

#: Descent at rate 1 over all records at once, read by this process.
DESCENT = (
    *("optimizer=sgd", "optimizer.momentum=0.0", "optimizer.lr=1.0", "lr_scheduler=constant"),
    *("data.batch_size=1000", "data.num_workers=0", "trainer.accelerator=cpu"),
    "trainer.max_epochs=1",
)


def new_loop(*overrides: str) -> tuple[Loop, DataModule]:
    """The loop of a config with a fresh model, and its data."""
    config = compose(overrides).config
    data = DataModule(**config.data)
    data.prepare()
    config = decide(config, data)
    return make_loop(config, make_model(config, data), data), data


def take_step(
    *overrides: str, devices: int = 1, patch: Callable[[Loop], None] | None = None
) -> Step:
    """An epoch in float64, which is one step unless the overrides say otherwise.

    Args:
        *overrides: of the config; those that come last count.
        devices: how many processes share the records, one or two; two are forks of this one.
        patch: changes the loop before.
    """
    words = (*DESCENT, "trainer.precision=64-true", *overrides, f"trainer.devices={devices}")
    loop, data = new_loop(*words)
    if patch is not None:
        patch(loop)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.pt"
        if devices == 1:
            _step(loop, data, path)
        else:
            in_two_processes(_joined_step, loop, data, path)
        moved, loss = torch.load(path)
    return moved, loss


def _joined_step(loop: Loop, data: DataModule, path: Path) -> None:
    with joined(loop.trainer):
        _step(loop, data, path)


def _step(loop: Loop, data: DataModule, path: Path) -> None:
    loop.begin()
    before = parameters_to_vector(loop.model.parameters()).detach().clone()
    train, val = (
        data.loader(
            part,
            loop.model.passes,
            rank=loop.rank,
            world_size=loop.world_size,
            lowering=loop.model.lowering,
        )
        for part in ("train", "val")
    )
    loop.fit(train, val)
    if loop.is_first:
        moved = parameters_to_vector(loop.model.parameters()).detach() - before
        torch.save((moved, loop.train_loss), path)


def both_agree(first: Step, second: Step) -> None:
    """Two steps are the same to 1e-6, and not nothing."""
    assert second[0].abs().max() > 1e-3
    assert first[1] == pytest.approx(second[1], abs=1e-6, rel=1e-6)
    torch.testing.assert_close(first[0], second[0], atol=1e-6, rtol=0)
