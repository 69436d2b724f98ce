"""Loggers: what else gets the metrics of every epoch, by the config group `logger`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError
from graphfold.training.config.instantiate import instantiate
from graphfold.training.loop.loop import Logger
from graphfold.training.process.quiet import is_first


class TensorBoardLogger:
    """Writes events for TensorBoard, one scalar for each metric.

    Args:
        save_dir: the run folder.
        name: the folder in it.
        version: a folder in that one; "" for none.
    """

    def __init__(self, save_dir: str, name: str = "tensorboard", version: str = "") -> None:
        self.log_dir = os.path.join(save_dir, name, version)
        self._writer: Any = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Writes the metrics after some steps."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # takes longer to load than to train

            self._writer = SummaryWriter(self.log_dir)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Writes nothing: config.yaml is beside the events."""

    def finalize(self, status: str) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()


def make_loggers(config: Mapping[str, Any], folder: Path) -> list[Logger]:
    """The loggers of the config, made to write into the run folder.

    Raises:
        ConfigError: if a logger's names lead out of that folder.
    """
    loggers = []
    for name, node in (config["logger"] or {}).items():
        if node is None:
            continue
        logger = instantiate(node, f"logger.{name}")(save_dir=str(folder))
        place = Path(getattr(logger, "log_dir", None) or folder).absolute()
        if not Path(os.path.normpath(place)).is_relative_to(folder.absolute()):
            raise ConfigError(
                f"logger.{name} would write to {place}, outside of the run folder. Give it a name "
                "without slashes."
            )
        if is_first():
            logger.log_hyperparams(dict(config))
        loggers.append(logger)
    return loggers
