"""Loop: the epochs and steps of training; Callback: hooks into them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphfold.batching import Batch
from graphfold.errors import DivergenceError
from graphfold.layers import ColumnEncoder, Model
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.loader import GraphLoader
from graphfold.training.loop.loggers import Logger, end_loggers
from graphfold.training.loop.optimisation import (
    add_gradients,
    build_optimizer,
    freeze,
    in_training_mode,
    skips_absent_rows,
)
from graphfold.training.process.ranks import (
    add_over_processes,
    add_up,
    own_device,
    share_buffers,
    world,
)
from graphfold.training.scoring import (
    MEMORY_ERRORS,
    HeadMetrics,
    Metrics,
    gather,
    halves,
    is_out_of_memory,
    rows_of,
)
from graphfold.training.trainer import Trainer

#: Rounding errors may make a non-negative loss negative, by at most this.
ROUNDING = 1e-4

_CHECKPOINTS = "The checkpoints of the epochs before are kept."


class Callback:
    """Base of callbacks: each method is called at one moment of training, and does nothing here.

    The attributes of the loop have the state of training, and `loop.should_stop = True` ends it
    after this epoch. Each of several processes calls its own callbacks; `loop.is_first` is True in
    one of them. `state_dict` returns the state that a continued run needs.

    Attributes:
        reads_validation: whether it needs metrics of a validation part.
    """

    reads_validation: bool = False

    def on_fit_start(self, loop: Loop) -> None:
        """Called before the first epoch; the model is on its device, and resumed if the run is."""

    def on_train_epoch_start(self, loop: Loop) -> None:
        """Called before an epoch; the model is in training mode."""

    def on_train_batch_end(self, loop: Loop) -> None:
        """Called after the gradients of a batch; `loop.step` has grown if its step is complete."""

    def on_validation_end(self, loop: Loop) -> None:
        """Called with the `loop.metrics` of this epoch; the model has the weights to be saved."""

    def on_train_epoch_end(self, loop: Loop) -> None:
        """Called after training and validation of an epoch, and after the step of the schedule."""

    def on_epoch_saved(self, loop: Loop) -> None:
        """Called last in an epoch; `BestAndLast`, the first callback, writes its files here."""

    def on_fit_end(self, loop: Loop) -> None:
        """Called after the last epoch."""

    def on_exception(self, loop: Loop, error: BaseException) -> None:
        """Called when an error, or Ctrl-C, ends training."""

    def averaged_weights(self) -> Mapping[str, Tensor] | None:
        """Name -> tensor, validated and saved in place of the weights; None for the weights."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The state that a continued run needs: tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from `state_dict`."""


class Loop:
    """Trains a model, epoch by epoch.

    The loss of a step is the mean over its measured values, see `Head.denominator`, weighted by the
    weights of records and targets. A step may have several batches (accumulation) and several
    processes: the gradients of each batch are added, and at the end divided by the denominator of
    the full step, so that one large batch and many small ones give the same step. Hence gradients
    are added here and not by DistributedDataParallel, whose mean over processes would weigh a small
    part of a batch like a large one.

    A batch that does not fit in memory is split in two, repeatedly. A loss that is NaN or infinite,
    or negative where none can be, ends training with a `DivergenceError`, before the files of its
    epoch are written.

    Args:
        model: the model to train.
        make_optimizer: called with the parameters.
        make_lr_scheduler: called with the optimizer; stepped once per epoch. None for no schedule.
        trainer: the options of training.
        reduction: "per_graph" or "per_node".
        metrics: names or dotted paths of metrics; None for those of the model's head.
        monitor: the metric that chooses the best epoch, such as val/rmse.
        frozen: names of parts of the model whose weights are not trained.
        callbacks: called in this order.
        loggers: log the metrics of every epoch; the caller finalizes them, the loop after an error.

    Attributes:
        epoch: the number of this epoch, from 0 on.
        step: the number of steps so far.
        batch_index: the number of the batch in its epoch, of `num_batches`.
        batches: the training batches, from the first epoch on.
        metrics: val/NAME -> value after the last validation; None where it is undefined.
        train_loss: the mean loss of the last complete epoch.
        rate: its learning rate.
        should_stop: whether training ends after this epoch.

    Raises:
        ConfigError: if a frozen part does not exist, all weights are frozen, or there is no such
            metric.
    """

    def __init__(
        self,
        model: Model,
        make_optimizer: Callable[..., Optimizer],
        make_lr_scheduler: Callable[..., Any] | None = None,
        trainer: Trainer | None = None,
        *,
        reduction: str = "per_graph",
        metrics: Sequence[str] | None = None,
        monitor: str = "val/loss",
        frozen: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.model = model
        self.make_optimizer = make_optimizer
        self.make_lr_scheduler = make_lr_scheduler
        self.trainer = trainer or Trainer()
        self.reduction = reduction
        self.head_metrics = HeadMetrics.of(model.head, metrics, reduction)
        self.monitor = monitor
        self.frozen = tuple(frozen)
        freeze(model, frozen)
        self.callbacks = list(callbacks)
        self.loggers = list(loggers)
        self.policy = "depth"  # for halves of a batch
        self.device = torch.device("cpu")
        self.epoch = self.step = self.batch_index = self.num_batches = 0
        self.rank, self.world_size = 0, 1
        self.metrics: Metrics = {}
        self.train_loss = self.rate = float("nan")
        self.should_stop = False
        self.batches: GraphLoader | None = None
        self._first_count = self._count = self._epoch_count = 0.0
        self._epoch_loss = torch.zeros(())
        self._least_loss = torch.zeros(())  # of a row, in this epoch; NaN if one is NaN
        self._weights: list[nn.Parameter] = []  # collected once an epoch, not twice a step

    @property
    def mode(self) -> str:
        """The direction of the monitored metric: "min" if the least value is best, or "max"."""
        return self.head_metrics.mode(self.monitor)

    @property
    def is_first(self) -> bool:
        """True in the process that prints and writes."""
        return self.rank == 0

    @property
    def is_last_epoch(self) -> bool:
        """True if training ends after this epoch."""
        return self.should_stop or self.epoch + 1 >= self.trainer.max_epochs

    @property
    def running_loss(self) -> float:
        """The mean loss of this epoch so far; each process has its part of the sum."""
        return self._epoch_loss.item() / self._epoch_count if self._epoch_count else float("nan")

    # ---- The course of training

    def begin(self, device: torch.device | None = None) -> None:
        """Moves the model to the device of this process and makes the optimizer."""
        self.rank, self.world_size = world()
        self.device = device or own_device(self.trainer)
        self.model.to(self.device, self.trainer.dtype)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.trainer.scales_gradients)
        self._make_optimizer()

    def fit(self, train: GraphLoader, val: GraphLoader) -> None:
        """Trains from `epoch` to the last one, or until a callback ends it; call `begin` before.

        Args:
            train: the training batches of this process.
            val: its validation batches; perhaps empty.

        Raises:
            DivergenceError: at an impossible loss.
        """
        try:
            with torch.autograd.set_detect_anomaly(self.trainer.detect_anomaly):
                self.call("on_fit_start")
                while self.epoch < self.trainer.max_epochs and not self.should_stop:
                    self.train_epoch(train)
                    with self.weights_to_save():
                        self.validate(val)
                    self._end_epoch()
                    self.epoch += 1
                self.call("on_fit_end")
        except BaseException as error:
            for callback in self.callbacks:
                callback.on_exception(self, error)
            end_loggers(self.loggers, "failed")
            raise

    def train_epoch(self, batches: GraphLoader) -> None:
        """Trains on the training part once."""
        in_training_mode(self.model, self.frozen)
        batches.sampler.set_epoch(self.epoch)
        self.batches = batches
        self.num_batches = Trainer.limited(len(batches), self.trainer.limit_train_batches)
        self._epoch_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._least_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._epoch_count = 0.0
        self._weights = list(self.model.parameters())
        self.call("on_train_epoch_start")
        for index, batch in enumerate(islice(batches, self.num_batches)):
            self.batch_index = index
            with self.trainer.autocast(self.device):
                self.training_step(batch, index)
            self.call("on_train_batch_end")
        self._refuse_divergence()
        if self.world_size > 1:
            share_buffers(self.model)
        loss = add_up(self._epoch_loss.item(), self.device)
        self.train_loss = loss / self._epoch_count if self._epoch_count else float("nan")
        self.rate = float(self.optimizer.param_groups[0]["lr"])

    def training_step(self, batch: Batch, index: int) -> None:
        """Adds the gradients of a batch; makes the step when it is complete."""
        count = self._step_count(batch)  # of the batch on the CPU: nothing waits for the device
        if self._first_count == 0:
            self._first_count = count
        self._count += count
        self._epoch_count += count
        self._add_gradients(batch.to(self.device, non_blocking=True))
        if (index + 1) % self.trainer.accumulate_grad_batches and index + 1 < self.num_batches:
            return
        if self.device.type == "cpu":  # on a GPU every step would wait for the number
            self._refuse_divergence()
        self._complete_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self._first_count = self._count = 0.0
        self.step += 1

    @torch.no_grad()
    def validate(self, batches: GraphLoader) -> None:
        """Computes the metrics over all rows of all processes, each counted once."""
        self.model.eval()
        self.metrics = {}
        count = Trainer.limited(len(batches), self.trainer.limit_val_batches)
        numbered: list[tuple[int, EvalRows]] = []
        for index, batch in enumerate(islice(batches, count)):
            number = index * self.world_size + self.rank  # processes take turns
            with self.trainer.autocast(self.device):
                rows = rows_of(self.model, batch.to(self.device, non_blocking=True), self.policy)
            numbered.append((number, rows))
        if count:
            rows = gather(numbered)
            if bool(rows.loss.isnan().any()):
                epoch = self.epoch + 1
                raise _divergence(f"the loss of the validation part after epoch {epoch} is nan")
            self.metrics = {f"val/{name}": v for name, v in self.head_metrics(rows).items()}
        self.call("on_validation_end")

    def averaged_weights(self) -> Mapping[str, Tensor] | None:
        """Name -> tensor, of a callback that replaces the weights, such as by their mean."""
        return next((w for c in self.callbacks if (w := c.averaged_weights()) is not None), None)

    @contextmanager
    def weights_to_save(self) -> Iterator[None]:
        """Replaces the weights by `averaged_weights` within a `with` statement."""
        averaged = self.averaged_weights() or {}
        tensors = self.model.state_dict()  # shares their memory
        before = {name: tensors[name].clone() for name in averaged}
        try:
            for name, value in averaged.items():
                tensors[name].copy_(value)
            yield
        finally:
            for name, value in before.items():
                tensors[name].copy_(value)

    def _end_epoch(self) -> None:
        if isinstance(self.lr_scheduler, ReduceLROnPlateau):
            value = self.metrics.get(self.monitor)
            if value is not None:
                self.lr_scheduler.step(value)
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step()
        self.call("on_train_epoch_end")
        self.should_stop = add_up(float(self.should_stop), self.device) > 0  # all, or none
        self.log({"train/loss": self.train_loss, "lr": self.rate, **self.metrics})
        self.call("on_epoch_saved")

    def log(self, metrics: Metrics) -> None:
        """Passes defined numbers to the loggers."""
        numbers = {name: value for name, value in metrics.items() if value is not None}
        for logger in self.loggers:
            logger.log_metrics({"epoch": self.epoch, **numbers}, self.step)

    def call(self, moment: str) -> None:
        """Calls a method of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, moment)(self)

    # ---- The gradients of a step

    def _add_gradients(self, batch: Batch) -> None:
        """Differentiates a batch, in halves where it does not fit in memory."""
        try:
            self._differentiate(batch)
            return
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error) or batch.num_graphs < 2:
                raise
        # Outside of the handler, the tensors of the failed attempt are released.
        warnings.warn(
            f"a batch of {batch.num_graphs} graphs and {batch.dag.num_nodes} nodes ran out of "
            "memory and was split in two. Set a smaller data.batch_size or data.max_nodes.",
            stacklevel=2,
        )
        for half in halves(batch, self.model.plan, self.policy):
            self._add_gradients(half)

    def _differentiate(self, batch: Batch) -> None:
        head = self.model.head
        losses = self.model.losses(self.model(batch), head.target_rows(batch.dag))
        weights = batch.dag.weights()
        if weights is not None:
            times = weights[head.row_graph(batch.dag)].to(losses.dtype)
            losses = torch.where(times > 0, losses * times, 0.0)
        loss = losses.sum()
        self._epoch_loss += loss.detach()
        if len(losses):
            self._least_loss = torch.minimum(self._least_loss, losses.detach().min().double())
        if loss.requires_grad and self._first_count:
            add_gradients(self.scaler.scale(loss / self._first_count), self._learning())

    def _complete_gradients(self) -> None:
        """Divides the gradients by the denominator of the full step and clips them."""
        parameters = self._learning()
        if self.world_size > 1:
            add_over_processes(parameters)
        self.scaler.unscale_(self.optimizer)  # after the sum, so that all processes see infinities
        if 0 < self._first_count < self._count:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad *= self._first_count / self._count
        if self.trainer.gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(parameters, self.trainer.gradient_clip_val)

    def _step_count(self, batch: Batch) -> float:
        """The denominator that a batch adds, over all processes."""
        head, dag = self.model.head, batch.dag
        times = dag.weights()
        if times is None:
            times = torch.ones(batch.num_graphs, device=dag.batch.device)
        targets, graph = head.target_rows(dag), head.row_graph(dag)
        count = head.denominator(targets, graph, times, self.reduction)
        return add_up(float(count), self.device)

    def _refuse_divergence(self) -> None:
        """Ends training at an impossible loss; see the class."""
        total, least = self._epoch_loss.item(), self._least_loss.item()
        if not math.isfinite(total) or math.isnan(least):
            raise _divergence(f"the loss of epoch {self.epoch + 1} is {total:g}")
        if least < -ROUNDING and not self.model.head.losses_may_be_negative:
            raise DivergenceError(
                f"a record has the loss {least:g} in epoch {self.epoch + 1}, but "
                f"{type(self.model.head).__name__} has none below zero: a weight of a record, a "
                f"target or a class is negative. {_CHECKPOINTS} Correct the weights."
            )

    def _learning(self) -> list[nn.Parameter]:
        """The weights that are not frozen."""
        return [w for w in self._weights or self.model.parameters() if w.requires_grad]

    # ---- The optimizer

    def _make_optimizer(self) -> None:
        """Makes the optimizer and the schedule of its learning rate."""
        tables = self._sparse_tables()
        self.optimizer = build_optimizer(self.make_optimizer, self._learning(), tables)
        self.lr_scheduler = None
        if self.make_lr_scheduler is None:
            return
        options = {}
        if getattr(self.make_lr_scheduler, "func", None) is ReduceLROnPlateau:
            options = {"mode": self.mode, **getattr(self.make_lr_scheduler, "keywords", {})}
        self.lr_scheduler = self.make_lr_scheduler(self.optimizer, **options)

    def _sparse_tables(self) -> list[nn.Parameter]:
        """Makes gradients of embeddings sparse where that does not change the steps.

        A batch reads few rows of a large vocabulary; with a dense gradient each step updates the
        full table. Several processes and clipping need dense gradients; so does a GPU, which sorts
        the rows of sparse ones and is waited for until it has counted them.
        """
        options = self.trainer
        is_dense = options.gradient_clip_val is not None or options.accumulate_grad_batches > 1
        is_dense |= self.device.type != "cpu"
        if is_dense or self.world_size > 1 or not skips_absent_rows(self.make_optimizer):
            return []
        tables = []
        for module in self.model.modules():
            if isinstance(module, ColumnEncoder) and module.table is not None:
                module.sparse = True
                tables.append(module.table)
        return [table for table in tables if table.requires_grad]

    # ---- The state of a continued run

    def state_dict(self) -> dict[str, Any]:
        """The state that the next epoch depends on, without weights and random generators."""
        schedule = None if self.lr_scheduler is None else self.lr_scheduler.state_dict()
        return {
            "epoch": self.epoch,
            "step": self.step,
            "optimizer": self.optimizer.state_dict(),
            "lr_scheduler": schedule,
            "scaler": self.scaler.state_dict(),
            "callbacks": {name: c.state_dict() for name, c in self._named_callbacks()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state after an epoch; call `begin` and load the weights before."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        for name, callback in self._named_callbacks():
            if name in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][name])
        self.epoch, self.step = int(state["epoch"]) + 1, int(state["step"])

    def _named_callbacks(self) -> Iterator[tuple[str, Callback]]:
        """The callbacks by the names of their classes, with a number where there are several."""
        counts: dict[str, int] = {}
        for callback in self.callbacks:
            kind = type(callback).__name__
            counts[kind] = counts.get(kind, 0) + 1
            yield kind if counts[kind] == 1 else f"{kind} {counts[kind]}", callback


def _divergence(fault: str) -> DivergenceError:
    return DivergenceError(
        f"{fault}, so training ends. {_CHECKPOINTS} Take a lower optimizer.lr or "
        "trainer.gradient_clip_val=1, and look for targets or inputs of extreme size."
    )
