"""The files of every epoch: best.ckpt, last.ckpt and metrics.csv; and how a run takes them up."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from graphfold.errors import CheckpointError
from graphfold.files import write_bytes, write_text
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.ranks import gather_objects
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.generators import capture_generators, restore_generators
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.run.weights import check_state
from graphfold.training.scoring import Metrics


class BestAndLast(Callback):
    """Keeps best.ckpt, last.ckpt and metrics.csv.

    last.ckpt is written at the very end of an epoch, with the state of everything that the next
    epoch depends on, so a resumed run repeats the broken epoch from its start. The history of the
    metrics is part of it: metrics.csv has each epoch once.

    Args:
        folder: the run folder.
        common: what all checkpoints of the run share.
        monitor: the metric that chooses the best epoch, among equal ones val/loss. Epochs where it
            is undefined are compared by val/loss alone, and lose to those where it is defined.
        mode: "min" if the least value of the metric is best, or "max".

    Attributes:
        history: the rows of metrics.csv.
        is_best: whether this epoch is better than all before.
    """

    def __init__(self, folder: RunFolder, common: Checkpoint, monitor: str, mode: str) -> None:
        self.folder = folder
        self.common = common
        self.monitor = monitor
        self.mode = mode
        self.history: list[Metrics] = []
        self.best: list[float] | None = None  # see _goodness
        self.is_best = False

    def take_up(self, loop: Loop) -> None:
        """Puts a loop, and the random generators, where last.ckpt says that training was.

        Raises:
            CheckpointError: if the state of an optimizer is not that of its weights. torch's fused
                optimizers would read behind its end.
        """
        last = Checkpoint.load(self.folder.last)
        progress = read_progress(last)
        loop.model.load_state_dict(progress.get("weights") or last.state_dict)
        loop.load_state_dict(progress)
        check_state(loop.optimizer, self.folder.last)
        self.history = list(progress["history"])
        best = progress["best"]
        self.best = None if best is None else [float(value) for value in best]
        if self.best is not None and len(self.best) == 2:  # of versions that ignored ties
            self.best = [*self.best, math.inf]
        if len(progress["generators"]) == loop.world_size:
            restore_generators(progress["generators"][loop.rank])

    def on_validation_end(self, loop: Loop) -> None:
        """Writes best.ckpt if this epoch is the best one; it keeps no progress."""
        goodness = self._goodness(loop.metrics)
        self.is_best = self.best is None or goodness > self.best
        if self.is_best:
            self.best = goodness
            if loop.is_first:
                self._write(self.folder.best, loop.model.state_dict(), {"epoch": loop.epoch})

    def on_epoch_saved(self, loop: Loop) -> None:
        """Writes metrics.csv and last.ckpt."""
        row: Metrics = {"epoch": loop.epoch + 1, "step": loop.step, "train/loss": loop.train_loss}
        self.history.append({**row, "lr": loop.rate, **loop.metrics})
        generators = gather_objects(capture_generators())
        if not loop.is_first:
            return
        write_history(self.folder.history, self.history)
        weights, kept = loop.model.state_dict(), loop.kept_weights()
        progress = {**loop.state_dict(), "generators": generators, **self._state(loop)}
        if kept is not None:
            progress["weights"] = weights
        self._write(self.folder.last, {**weights, **(kept or {})}, progress)

    def _state(self, loop: Loop) -> dict[str, Any]:
        return {"history": self.history, "best": self.best, "is_finished": loop.is_last_epoch}

    def _write(
        self, path: Path, weights: Mapping[str, Tensor], progress: Mapping[str, Any]
    ) -> None:
        write_checkpoint(path, self.common, weights, progress)

    def _goodness(self, metrics: Metrics) -> list[float]:
        """Defined or not, the value of the metric, minus the loss: compared in this order."""
        value, sign = metrics.get(self.monitor), -1.0 if self.mode == "min" else 1.0
        loss = metrics.get("val/loss")
        if value is not None:
            return [1.0, sign * value, -math.inf if loss is None else -loss]
        return [0.0, float(len(self.history)) if loss is None else -loss, 0.0]


def write_checkpoint(
    path: Path, common: Checkpoint, weights: Mapping[str, Tensor], progress: Mapping[str, Any]
) -> None:
    """Writes a checkpoint of a run; what all of them share is `common`.

    Raises:
        OSError: if it cannot be written.
    """
    state = {name: value.cpu() for name, value in weights.items()}
    whole = replace(common, state_dict=state, progress={**progress, **common.progress})
    write_bytes(path, whole.encode())


def write_history(path: Path, rows: Sequence[Metrics]) -> None:
    """Writes metrics.csv: a line per epoch, an empty cell for an undefined metric."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def read_progress(last: Checkpoint) -> dict[str, Any]:
    """The progress that last.ckpt keeps; that of earlier versions, Lightning's, as of today.

    Raises:
        CheckpointError: if it holds none, or the wrong kind of values.
    """
    progress = last.progress
    try:
        if "pytorch-lightning_version" in progress:
            progress = _of_lightning(last)
        whole = {name: progress[name] for name in ("epoch", "history", "is_finished")}
        return {**progress, **whole, "epoch": int(progress["epoch"])}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError("last.ckpt holds no progress. Restore the file.") from error


def _of_lightning(last: Checkpoint) -> dict[str, Any]:
    """The progress of a run whose loop was Lightning's."""
    progress, kept = last.progress, last.progress["callbacks"]
    callbacks: dict[str, Any] = {}
    for name, state in kept.items():
        if name.startswith("EarlyStopping"):
            best = state["best_score"]
            callbacks["EarlyStopping"] = {"best": float(best), "waited": state["wait_count"]}
    weights = progress.get("current_model_state")
    if weights is not None:
        weights = {name.removeprefix("model."): value for name, value in weights.items()}
        count = int(progress["averaging_state"]["n_averaged"])
        callbacks["AverageWeights"] = {"count": count, "mean": last.state_dict}
    return {
        **kept["BestAndLast"],
        "epoch": progress["epoch"],
        "step": progress["global_step"],
        "optimizer": progress["optimizer_states"][0],
        "lr_scheduler": next(iter(progress["lr_schedulers"]), None),
        "scaler": progress.get("MixedPrecision", {}),
        "callbacks": callbacks,
        "generators": progress["generators"],
        "weights": weights,
    }
