"""ProgressLine: where a training run is, with the metric that matters."""

from __future__ import annotations

import sys
import time
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from graphfold.training.loop.learner import Learner
from graphfold.training.loop.ways import describe_ways
from graphfold.training.run.best_and_last import BestAndLast

#: Seconds between two losses in the bar.
_PERIOD = 0.2


class ProgressLine(CheckpointCallback):
    """One line per epoch, before them one on the cells; on a terminal also a bar within the epoch.

    To Lightning it is a checkpoint callback: these come last, when the epoch's loss is known.
    """

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._started = self._shown = 0.0
        self._said: frozenset[str] = frozenset()  # the ways to run cells that were told

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Starts the clock and the bar."""
        self._started = time.perf_counter()
        if not (trainer.is_global_zero and sys.stderr.isatty()):
            return
        self._bar = Progress(
            TextColumn(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.4f}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=trainer.num_training_batches, loss=float("nan"))

    def on_train_batch_end(self, trainer: Trainer, pl_module: Learner, *_: Any) -> None:  # type: ignore[override]
        """Says how the cells run when that is new; moves the bar."""
        if trainer.is_global_zero:
            self._tell_ways(pl_module)
        if self._bar is None:
            return
        self._bar.advance(self._task)
        if time.perf_counter() - self._shown > _PERIOD:  # to ask for the loss waits for the device
            self._shown = time.perf_counter()
            self._bar.update(self._task, loss=pl_module.running_loss)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        """Prints the line of the epoch."""
        self._stop_bar()
        if not trainer.is_global_zero:
            return
        value = pl_module.metrics.get(pl_module.monitor)
        keeper = next(c for c in trainer.callbacks if isinstance(c, BestAndLast))  # type: ignore[attr-defined]
        parts = [
            f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}",
            f"loss {float(trainer.callback_metrics['train/loss']):.4f}",
            f"{pl_module.monitor} {'undefined' if value is None else f'{value:.4f}'}",
            "(best)" if keeper.is_best(pl_module) else "",
            f"{time.perf_counter() - self._started:.1f} s",
        ]
        print("  ".join(part for part in parts if part), flush=True)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Takes the bar away."""
        self._stop_bar()

    def _tell_ways(self, learner: Learner) -> None:
        ways = frozenset(learner.model.network.ways.values())
        if ways - self._said:
            print(f"cells: {describe_ways(learner.model)}", flush=True)
            self._said |= ways

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
