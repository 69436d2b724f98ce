"""Callbacks and loggers are checked before any work."""

from __future__ import annotations

from typing import Any

import pytest

from graphfold.errors import ConfigError
from graphfold.training.config.check_parts import check_trainer
from graphfold.training.config.compose import compose

CALLBACKS = "lightning.pytorch.callbacks"


@pytest.mark.parametrize(
    ("group", "node", "fault"),
    [
        ("callbacks", {}, r"callbacks\.x is no Callback\. Give its _target_, or null"),
        ("callbacks", 3, r"callbacks\.x is no Callback"),
        ("callbacks", {"_target_": "torch.nn.Identity"}, r"callbacks\.x is no Callback"),
        (
            "callbacks",
            {"_target_": f"{CALLBACKS}.LearningRateMonitor", "_partial_": True},
            r"callbacks\.x\._partial_ must be false",
        ),
        (
            "callbacks",
            {"_target_": f"{CALLBACKS}.EarlyStopping"},
            r"callbacks\.x\._partial_ must be true",
        ),
        ("logger", {"_target_": f"{CALLBACKS}.Timer"}, r"logger\.x is no Logger"),
        (
            "logger",
            {"_target_": "lightning.pytorch.loggers.CSVLogger"},
            r"logger\.x\._partial_ must be true",
        ),
    ],
)
def test_what_is_no_callback_or_logger_is_refused(group: str, node: Any, fault: str) -> None:
    config = compose(["data=brackets", "data.path=x", "data.num_classes=2"]).config
    check_trainer(config)
    with pytest.raises(ConfigError, match=fault):
        check_trainer({**config, group: {"x": node}})
