"""The callbacks of graphfold; a config may name others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from graphfold._torch import move_towards
from graphfold.errors import ConfigError
from graphfold.training.loop.checks import describe_execution
from graphfold.training.loop.loop import Callback, Loop

#: Seconds between two updates of the loss in the bar.
_PERIOD = 0.2


class EarlyStopping(Callback):
    """Ends training when a metric has not improved for some epochs.

    An epoch in which the metric is undefined counts as one without improvement.

    Args:
        patience: the number of epochs without improvement.
        min_delta: smaller improvements do not count.
        monitor: the metric, such as val/rmse; None for the one that chooses the best epoch.
    """

    reads_validation = True

    def __init__(
        self, patience: int = 3, min_delta: float = 0.0, monitor: str | None = None
    ) -> None:
        self.patience = patience
        self.min_delta = min_delta
        self.monitor = monitor
        self.best: float | None = None
        self.waited = 0  # epochs without improvement

    def on_fit_start(self, loop: Loop) -> None:
        """Raises ConfigError if there is no such metric."""
        self.monitor = loop.head_metrics.choose_monitor(self.monitor or loop.monitor, True)

    def on_train_epoch_end(self, loop: Loop) -> None:
        """Counts the epochs without improvement, and ends training after `patience`."""
        assert self.monitor is not None
        value = loop.metrics.get(self.monitor)
        sign = -1 if loop.head_metrics.mode(self.monitor) == "min" else 1
        if value is not None and (
            self.best is None or sign * (value - self.best) > abs(self.min_delta)
        ):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        loop.should_stop |= self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The best value, and the number of epochs since."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the best value and the count."""
        self.best, self.waited = state["best"], state["waited"]


class AverageWeights(Callback):
    """Validates and saves an exponential moving average of the weights over the steps.

    After step n the mean moves by 1 - d towards the weights, as ExponentialMovingAverage of
    TensorFlow does with a number of updates:

        d = min(decay, (1 + n) / (10 + n))

    so early weights are soon forgotten. Training continues from the weights themselves; last.ckpt
    holds both. The mean is at least in single precision: in half precision small steps would be
    lost. Buffers, such as statistics of normalisation, are averaged too.

    Args:
        decay: the weight of the old mean in a step, after many steps.

    Raises:
        ConfigError: if `decay` is not between 0 and 1.
    """

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"decay={decay} leaves no mean. Use a number between 0 and 1.")
        self.decay = decay
        self.count = 0  # of the steps in the mean
        self._mean: dict[str, Tensor] = {}
        self._step = 0  # that was added last
        self._pair: tuple[list[Tensor], list[Tensor]] = [], []

    def on_train_epoch_start(self, loop: Loop) -> None:
        """Collects the tensors of means and weights once per epoch, which is slow."""
        weights = loop.model.state_dict()
        if not self._mean:
            self._mean = {name: _in_full(weight) for name, weight in weights.items()}
        self._mean = {name: mean.to(loop.device) for name, mean in self._mean.items()}
        self._pair = [self._mean[name] for name in weights], list(weights.values())
        self._step = loop.step

    def on_train_batch_end(self, loop: Loop) -> None:
        """Moves the means after a step; after the first step they are the weights."""
        if loop.step == self._step:
            return
        self._step = loop.step
        means, weights = self._pair
        self.add(means, [w.to(m) for w, m in zip(weights, means, strict=True)], self.count)
        self.count += 1

    def add(self, means: Sequence[Tensor], weights: Sequence[Tensor], count: int) -> None:
        """Moves the means of `count` steps, in place, towards the weights."""
        share = 1 - min(self.decay, (1 + count) / (10 + count)) if count else 1.0
        moving: tuple[list[Tensor], list[Tensor]] = [], []
        for mean, weight in zip(means, weights, strict=True):
            if mean.is_floating_point() and count:
                moving[0].append(mean)
                moving[1].append(weight)
            else:  # a counter has no mean
                mean.copy_(weight)
        if moving[0]:
            move_towards(*moving, share)

    def averaged_weights(self) -> Mapping[str, Tensor] | None:
        """The mean; None before the first step."""
        return self._mean if self.count else None

    def state_dict(self) -> dict[str, Any]:
        """The mean and the number of its steps."""
        return {"count": self.count, "mean": self._mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the mean."""
        self.count, self._mean = int(state["count"]), dict(state["mean"])


def _in_full(weight: Tensor) -> Tensor:
    """A copy, in single precision at least."""
    if not weight.is_floating_point():
        return weight.clone()
    return weight.to(torch.promote_types(weight.dtype, torch.float32), copy=True)


class ProgressLine(Callback):
    """Prints a line per epoch, one on the execution of cells, one on padding, and a bar.

    Args:
        is_best: returns whether the saved epoch is the best so far.
    """

    def __init__(self, is_best: Callable[[], bool] = lambda: False) -> None:
        self._is_best = is_best
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._started = self._shown = 0.0
        self._said_padding = False
        self._printed: frozenset[str] = frozenset()  # the executions of cells

    def on_train_epoch_start(self, loop: Loop) -> None:
        """Starts the clock and the bar."""
        self._started = time.perf_counter()
        if not (loop.is_first and sys.stderr.isatty()):
            return
        self._bar = Progress(
            TextColumn(f"epoch {loop.epoch + 1}/{loop.trainer.max_epochs}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.4f}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=loop.num_batches, loss=float("nan"))

    def on_train_batch_end(self, loop: Loop) -> None:
        """Prints how the cells run when that changes; moves the bar."""
        kinds = frozenset(loop.model.network.execution.values()) if loop.is_first else frozenset()
        if kinds - self._printed:
            print(f"cells: {describe_execution(loop.model)}", flush=True)
            self._printed |= kinds
        if self._bar is None:
            return
        self._bar.advance(self._task)
        if time.perf_counter() - self._shown > _PERIOD:  # reading the loss waits for the device
            self._shown = time.perf_counter()
            self._bar.update(self._task, loss=loop.running_loss)

    def on_epoch_saved(self, loop: Loop) -> None:
        """Prints the line of the epoch."""
        self._stop_bar()
        if not loop.is_first:
            return
        padding = None if loop.batches is None else loop.batches.dataset.padding
        if padding is not None and not self._said_padding:
            print(padding, flush=True)
            self._said_padding = True
        value = loop.metrics.get(loop.monitor)
        parts = [
            f"epoch {loop.epoch + 1}/{loop.trainer.max_epochs}",
            f"loss {loop.train_loss:.4f}",
            f"{loop.monitor} {'undefined' if value is None else f'{value:.4f}'}",
            "(best)" if self._is_best() else "",
            f"{time.perf_counter() - self._started:.1f} s",
        ]
        print("  ".join(part for part in parts if part), flush=True)

    def on_exception(self, loop: Loop, error: BaseException) -> None:
        """Removes the bar."""
        self._stop_bar()

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
