"""Callbacks, loggers, metrics and the device are checked before any work."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from graphfold.errors import ConfigError
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import compose
from graphfold.training.config.training_config import TrainingConfig


@cache
def config(*more: str) -> TrainingConfig:
    return compose(["data=listops_generated", *more]).config


@pytest.mark.parametrize(
    ("group", "node", "fault"),
    [
        (
            "callbacks",
            {"_target_": "torch.nn.Identity"},
            r"callbacks\.x is no Callback\. Derive it from graphfold\.training\.Callback",
        ),
        (
            "callbacks",
            {"_target_": "graphfold.training.EarlyStopping", "_partial_": True},
            r"callbacks\.x\._partial_ must be false",
        ),
        (
            "callbacks",
            {"_target_": "graphfold.training.EarlyStoping"},
            r"graphfold.training has no 'EarlyStoping'. Did you mean 'EarlyStopping'?",
        ),
        (
            "callbacks",
            {"_target_": "graphfold.training.EarlyStopping", "patients": 3},
            r"callbacks\.x .* has no option 'patients'. Did you mean 'patience'?",
        ),
        (
            "logger",
            {"_target_": "graphfold.training.EarlyStopping", "_partial_": True},
            r"logger\.x is no logger: it has no log_metrics",
        ),
        (
            "logger",
            {"_target_": "graphfold.training.TensorBoardLogger"},
            r"logger\.x\._partial_ must be true",
        ),
    ],
)
def test_what_is_no_callback_or_logger_is_refused(group: str, node: Any, fault: str) -> None:
    whole = config()
    check_parts(whole)
    with pytest.raises(ConfigError, match=fault):
        check_parts(whole.changed({group: {"x": node}}))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"precision": 15}, r"trainer\.precision is 15, but it is one of 32-true"),
        ({"accelerator": "gpus"}, r"'gpus', but it is one of .* Did you mean 'gpu'?"),
        ({"limit_train_batches": 0}, r"limit_train_batches is 0, but it must be a whole"),
        ({"limit_val_batches": 1.5}, r"limit_val_batches is 1.5, but it must be a whole"),
        ({"max_epoch": 3}, r"trainer .* no option 'max_epoch'. Did you mean 'max_epochs'?"),
        ({"_target_": "torch.nn.Identity"}, "but graphfold.training.Trainer trains"),
        ({"accelerator": "cpu", "precision": "16-mixed"}, "is for GPUs. Set trainer"),
    ],
)
def test_what_the_trainer_does_not_have_is_refused(options: dict[str, Any], fault: str) -> None:
    mapping = config().mapping
    trainer = {**mapping["trainer"], **options}
    with pytest.raises(ConfigError, match=fault):
        check_parts(TrainingConfig.of({**mapping, "trainer": trainer}))


def test_all_faults_are_told_at_once() -> None:
    whole = config("+optimizer.lrr=3", "optimizer.lr=fast", "metrics=[none]")
    with pytest.raises(ConfigError) as caught:
        check_parts(whole)
    assert all(word in caught.value.message for word in ("'lrr'", "optimizer.lr ", "'none'"))


@pytest.mark.parametrize("name", ["passes", "cells", "encoder", "readout", "head"])
def test_a_model_without_what_it_needs_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.{name} is not there, but the model needs it"):
        check_parts(config(f"~model.{name}"))
