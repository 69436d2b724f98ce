"""Going on with a run: what its last checkpoint says of its progress, and what may be changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

from graphfold.errors import CheckpointError, ConfigError
from graphfold.training.loop.optimizer import LENGTHS
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.scoring.metrics import Metrics


def change_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config with other values at some dotted keys."""
    changed = copy.deepcopy(dict(config))
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        changed[section][name] = value
    return changed


def check_epochs(config: Mapping[str, Any], stored: Mapping[str, Any], done: int) -> None:
    """Refuses fewer epochs than are done; warns of a schedule that is made for fewer.

    Args:
        config: the config to go on with.
        stored: that of the run so far.
        done: how many epochs it has.

    Raises:
        ConfigError: if there are to be fewer.
    """
    wanted, before = config["trainer"]["max_epochs"], stored["trainer"]["max_epochs"]
    if wanted < done and wanted != before:
        raise ConfigError(
            f"trainer.max_epochs is {wanted}, but the run has {done} epochs already. Give more to "
            "go on, or start a new run."
        )
    schedule = config["lr_scheduler"] or {}
    for name in LENGTHS:
        if wanted > before and isinstance(schedule.get(name), int) and schedule[name] < wanted:
            warnings.warn(
                f"lr_scheduler.{name} is {schedule[name]}: the schedule of the learning rate was "
                f"made for so many epochs, and its further course is not that of a run of {wanted}."
                " For a schedule over all epochs start a new run, with init_from=RUN if you like.",
                stacklevel=3,
            )


def epochs_done(last: Checkpoint) -> int:
    """The number of epochs of a run."""
    try:
        return int(last.progress["epoch"]) + 1
    except (KeyError, TypeError, ValueError) as error:
        raise _no_progress() from error


def has_finished(last: Checkpoint) -> bool:
    """True if a run had come to its last epoch, or was stopped early."""
    return bool(_kept(last, "is_finished"))


def read_history(last: Checkpoint) -> list[Metrics]:
    """The metrics of every epoch."""
    return list(_kept(last, "history"))


def _kept(last: Checkpoint, name: str) -> Any:
    """The state of `BestAndLast` in last.ckpt."""
    try:
        return last.progress["callbacks"]["BestAndLast"][name]
    except (KeyError, TypeError) as error:
        raise _no_progress() from error


def _no_progress() -> CheckpointError:
    return CheckpointError("last.ckpt holds no progress. Restore the file.")
