"""BestAndLast: what a run writes at the end of every epoch."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback

from graphfold.errors import CheckpointError
from graphfold.files import write_bytes, write_text
from graphfold.training.loop.averaging import averaged
from graphfold.training.loop.learner import Learner
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.generators import capture_generators, restore_generators
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.weights import check_state
from graphfold.training.scoring import Metrics

_PREFIX = "model."


class BestAndLast(CheckpointCallback):
    """Keeps best.ckpt, last.ckpt and metrics.csv.

    last.ckpt is written at the very end of an epoch, with the state of everything that the next
    epoch depends on, so a resumed run repeats the broken epoch from its start. The history of the
    metrics is part of it: metrics.csv has each epoch once.

    Args:
        folder: the run folder.
        monitor: the metric that chooses the best epoch, among equal ones val/loss. Epochs where it
            is undefined are compared by val/loss alone, and lose to those where it is defined.
        mode: "min" if the least value of the metric is best, or "max".
    """

    def __init__(self, folder: RunFolder, monitor: str, mode: str) -> None:
        self.folder = folder
        self.monitor = monitor
        self.mode = mode
        self.history: list[Metrics] = []
        self.best: list[float] | None = None  # see _goodness
        self.is_finished = False
        self.has_begun = False  # with what last.ckpt kept a step was taken
        self._generators: list[dict[str, Any]] | None = None

    def is_best(self, learner: Learner) -> bool:
        """True if the epoch that is ending is better than all before."""
        return self.best is None or self._goodness(learner.metrics) > self.best

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Puts the random generators where the interrupted run had them.

        Raises:
            CheckpointError: if the state of an optimizer is not that of its weights. torch's fused
                optimizers would read behind its end.
        """
        for optimizer in trainer.optimizers:
            check_state(optimizer, self.folder.last)
        if self._generators and len(self._generators) == trainer.world_size:
            restore_generators(self._generators[trainer.global_rank])
        self._generators = None

    def on_train_batch_end(self, *_: Any) -> None:
        """Notes that a step was taken, which needs all that last.ckpt keeps of the optimizer."""
        self.has_begun = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        """Writes the files of the epoch."""
        is_best = self.is_best(pl_module)
        if is_best:
            self.best = self._goodness(pl_module.metrics)
        self.history.append(self._row(trainer, pl_module))
        done = trainer.current_epoch + 1
        self.is_finished = trainer.should_stop or done >= (trainer.max_epochs or done)
        if trainer.is_global_zero:
            write_history(self.folder.history, self.history)
        if is_best:
            with averaged(trainer, pl_module):
                trainer.save_checkpoint(self.folder.best, weights_only=True)
        trainer.save_checkpoint(self.folder.last)

    def state_dict(self) -> dict[str, Any]:
        """The state of this callback in last.ckpt."""
        return {"history": self.history, "best": self.best, "is_finished": self.is_finished}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up what last.ckpt kept."""
        self.history = state_dict["history"]
        self.best = state_dict["best"]
        if self.best is not None and len(self.best) == 2:  # of versions that ignored ties
            self.best = [*self.best, math.inf]
        self.is_finished = state_dict["is_finished"]

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the generators of all processes."""
        states: list[Any] = [capture_generators()]
        if trainer.world_size > 1:
            mine, states = states[0], [None] * trainer.world_size
            torch.distributed.all_gather_object(states, mine)
        checkpoint["generators"] = states

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps the generators for the start of training; building the trainer draws from them."""
        self._generators = checkpoint["generators"]

    def _goodness(self, metrics: Metrics) -> list[float]:
        """Defined or not, the value of the metric, minus the loss: compared in this order."""
        value, sign = metrics.get(self.monitor), -1.0 if self.mode == "min" else 1.0
        loss = metrics.get("val/loss")
        if value is not None:
            return [1.0, sign * value, -math.inf if loss is None else -loss]
        return [0.0, float(len(self.history)) if loss is None else -loss, 0.0]

    def _row(self, trainer: Trainer, learner: Learner) -> Metrics:
        row: Metrics = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        row["train/loss"] = float(trainer.callback_metrics["train/loss"])
        row["lr"] = learner.rate
        return row | learner.metrics


class GraphfoldCheckpoints(TorchCheckpointIO):
    """Writes what Lightning keeps in graphfold's format, and reads it back.

    Args:
        common: what all checkpoints of the run share.
    """

    def __init__(self, common: Checkpoint) -> None:
        self.common = common

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Writes a checkpoint; one without optimizers (best.ckpt) keeps no progress.

        Raises:
            OSError: if it cannot be written.
        """
        if "state_dict" not in checkpoint:  # weights that a process hands to its parent
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        weights = {k.removeprefix(_PREFIX): v.cpu() for k, v in checkpoint["state_dict"].items()}
        progress = {k: v for k, v in checkpoint.items() if k != "state_dict"}
        if "optimizer_states" not in progress:
            progress = {"epoch": checkpoint["epoch"]}
        progress |= self.common.progress
        whole = replace(self.common, state_dict=weights, progress=progress)
        write_bytes(Path(path), whole.encode())

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Reads a checkpoint as Lightning knows it."""
        if Path(path).suffix != ".ckpt" or Path(path).name == ".temp.ckpt":
            return super().load_checkpoint(path, map_location, weights_only=True)
        checkpoint = Checkpoint.load(Path(path))
        if not _counts(checkpoint.progress.get("loops", {})):
            raise CheckpointError(
                f"{path}: its progress is damaged: epochs and steps are no counts. Restore the "
                "file; or begin anew, with init_from=RUN for the weights.",
                path=str(path),
            )
        weights = {_PREFIX + name: value for name, value in checkpoint.state_dict.items()}
        return {**checkpoint.progress, "state_dict": weights}


def _counts(state: Any) -> bool:
    """True if the state of Lightning's loops holds counts and flags only.

    Lightning takes anything, and fails with it in the middle of an epoch.
    """
    if isinstance(state, dict):
        return all(map(_counts, state.values()))
    return state is None or isinstance(state, int)


def write_history(path: Path, rows: list[Metrics]) -> None:
    """Writes metrics.csv: a line per epoch, an empty cell for an undefined metric."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
