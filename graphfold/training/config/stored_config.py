"""Configs of stored runs: checked, for a file may be damaged, and made to fit this version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphfold.errors import CheckpointError, ConfigError
from graphfold.training.config.check_config import check_config, check_whole
from graphfold.training.config.earlier_configs import upgraded


def read_stored_config(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The config of a stored run, checked, with today's options.

    Args:
        config: what the file holds.
        path: the file, for messages.

    Raises:
        CheckpointError: naming the file, and the key that is absent or has no such value.
    """
    try:
        check_whole(config)
        check_config(config)
    except ConfigError as error:
        raise _broken(path, error.message) from error
    return upgraded(config)


def _broken(path: Path, fault: str) -> CheckpointError:
    return CheckpointError(f"{path}: {fault} Restore the file, or train again.", path=str(path))
