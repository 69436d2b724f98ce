"""Files of every epoch (best.ckpt, last.ckpt, metrics.csv), and continuing a run from them."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from graphfold.errors import CheckpointError, ConfigError
from graphfold.files import write_text
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.process import capture_generators, restore_generators
from graphfold.training.process.ranks import gather_objects
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics

#: Arguments of schedules of the learning rate that are a number of epochs.
LENGTHS = ("T_max", "total_steps")


class BestAndLast(Callback):
    """Writes best.ckpt, last.ckpt and metrics.csv.

    last.ckpt is written at the end of an epoch, with all state that the next epoch depends on, so a
    resumed run repeats the broken epoch from its start. It includes the history of the metrics, so
    metrics.csv has each epoch once.

    Args:
        folder: the run folder.
        common: the common part of all checkpoints of the run.
        monitor: the metric that chooses the best epoch; val/loss decides between equal ones. Epochs
            with an undefined metric are compared by val/loss, and are worse than all others.
        mode: "min" if the least value of the metric is best, or "max".

    Attributes:
        history: the rows of metrics.csv.
        is_best: whether this epoch is better than all earlier ones.
    """

    def __init__(self, folder: RunFolder, common: Checkpoint, monitor: str, mode: str) -> None:
        self.folder = folder
        self.common = common
        self.monitor = monitor
        self.mode = mode
        self.history: list[Metrics] = []
        self.best: list[float] | None = None  # see _goodness
        self.is_best = False

    def restore(self, loop: Loop, last: Checkpoint) -> None:
        """Restores a loop and the random generators from last.ckpt."""
        progress = last.progress
        loop.model.load_state_dict(progress["weights"] or last.state_dict)
        loop.load_state_dict(progress)
        self.history, self.best = list(progress["history"]), progress["best"]
        if len(progress["generators"]) == loop.world_size:
            restore_generators(progress["generators"][loop.rank])

    def on_validation_end(self, loop: Loop) -> None:
        """Writes best.ckpt if this epoch is the best one; it holds no state of the optimizer."""
        goodness = self._goodness(loop.metrics)
        self.is_best = self.best is None or goodness > self.best
        if self.is_best:
            self.best = goodness
            if loop.is_first:
                weights = loop.model.state_dict()
                write_checkpoint(self.folder.best, self.common, weights, {"epoch": loop.epoch})

    def on_epoch_saved(self, loop: Loop) -> None:
        """Writes metrics.csv and last.ckpt."""
        row: Metrics = {"epoch": loop.epoch + 1, "step": loop.step, "train/loss": loop.train_loss}
        self.history.append({**row, "lr": loop.rate, **loop.metrics})
        generators = gather_objects(capture_generators())
        if not loop.is_first:
            return
        write_history(self.folder.history, self.history)
        weights, averaged = loop.model.state_dict(), loop.averaged_weights()
        progress = {
            **loop.state_dict(),
            "generators": generators,
            "history": self.history,
            "best": self.best,
            "is_finished": loop.is_last_epoch,
            "weights": None if averaged is None else weights,
        }
        write_checkpoint(self.folder.last, self.common, {**weights, **(averaged or {})}, progress)

    def _goodness(self, metrics: Metrics) -> list[float]:
        """[is defined, signed metric, minus the loss], compared in this order."""
        value, sign = metrics.get(self.monitor), -1.0 if self.mode == "min" else 1.0
        loss = metrics.get("val/loss")
        if value is not None:
            return [1.0, sign * value, -math.inf if loss is None else -loss]
        return [0.0, float(len(self.history)) if loss is None else -loss, 0.0]


def write_checkpoint(
    path: Path, common: Checkpoint, weights: Mapping[str, Tensor], progress: Mapping[str, Any]
) -> None:
    """Writes a checkpoint of a run: the common part, weights and progress.

    Raises:
        OSError: if it cannot be written.
    """
    state = {name: value.cpu() for name, value in weights.items()}
    replace(common, state_dict=state, progress={**progress, **common.progress}).save(path)


def write_history(path: Path, rows: Sequence[Metrics]) -> None:
    """Writes metrics.csv: a line per epoch, an empty cell for an undefined metric."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def load_begun(members: Sequence[RunFolder]) -> list[Checkpoint]:
    """Loads last.ckpt of the members of a run whose training has begun.

    Raises:
        CheckpointError: if a file cannot be read, or is no last.ckpt.
    """
    begun = {path: Checkpoint.load(path) for m in members if (path := m.last).is_file()}
    for path, last in begun.items():
        if "history" not in last.progress:
            raise CheckpointError(f"{path}: holds no progress of a training. Restore the file.")
    return list(begun.values())


def is_done(last: Checkpoint, max_epochs: int, more_epochs: bool) -> bool:
    """True if training is complete; `more_epochs` continues one that has stopped early."""
    has_stopped = last.progress["is_finished"] and not more_epochs
    return bool(has_stopped or epochs_done(last) >= max_epochs)


def epochs_done(last: Checkpoint) -> int:
    """The number of complete epochs of a run."""
    return int(last.progress["epoch"]) + 1


def check_epochs(config: TrainingConfig, stored: TrainingConfig, done: int) -> None:
    """Refuses fewer epochs than are done; warns of a schedule for fewer epochs.

    Args:
        config: the config of the continued run.
        stored: the config of the run so far.
        done: the number of its epochs.

    Raises:
        ConfigError: if `config` has fewer epochs.
    """
    wanted, before = config.trainer.max_epochs, stored.trainer.max_epochs
    if wanted < done and wanted != before:
        raise ConfigError(
            f"trainer.max_epochs is {wanted}, but the run has {done} epochs already. Give more to "
            "go on, or start a new run."
        )
    schedule = config.lr_scheduler or {}
    for name in LENGTHS:
        if wanted > before and isinstance(schedule.get(name), int) and schedule[name] < wanted:
            warnings.warn(
                f"lr_scheduler.{name} is {schedule[name]}: the schedule of the learning rate was "
                f"made for so many epochs, and its further course is not that of a run of {wanted}."
                " For a schedule over all epochs start a new run, with init_from=RUN if you like.",
                stacklevel=3,
            )


def join_members(folder: RunFolder, members: Sequence[RunFolder]) -> None:
    """Writes best.ckpt of an ensemble from the best.ckpt of every member."""
    Checkpoint.join([Checkpoint.load(member.best) for member in members]).save(folder.best)


def read_histories(members: Sequence[RunFolder]) -> list[Metrics]:
    """The metrics of every epoch; in an ensemble with the number of the member."""
    histories = [list(Checkpoint.load(m.last).progress["history"]) for m in members]
    if len(members) == 1:
        return histories[0]
    return [
        {"member": number, **row}
        for number, history in enumerate(histories, start=1)
        for row in history
    ]
