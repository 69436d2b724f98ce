"""Learner: one optimisation step whose loss has the denominator of the whole step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphfold.batching import Batch
from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import DivergenceError
from graphfold.layers import ColumnEncoder, Model
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.model import build_model, complete_model_config
from graphfold.training.config.stages import Stage, read_stages
from graphfold.training.loop.freezing import StagedModel
from graphfold.training.loop.learning_rates import (
    rate_without_factors,
    read_factors,
    refuse_lost_factors,
)
from graphfold.training.loop.optimizer import LENGTHS, build_optimizer, skips_absent_rows
from graphfold.training.loop.out_of_memory import MEMORY_ERRORS, halves, is_out_of_memory
from graphfold.training.run.generators import member_seed, seed_generators
from graphfold.training.run.word_embeddings import set_word_vectors
from graphfold.training.scoring import HeadMetrics, Metrics, gather, rows_of

#: A loss that cannot be negative may be so by rounding errors, if by no more than this.
ROUNDING = 1e-4

_KEPT = "The checkpoints of the epochs before are kept."


class Learner(LightningModule):
    """Trains a model.

    The loss of a step is the sum of the losses of its rows over the number of its graphs, or of
    its measured rows; a record of weight 2 counts like two in both. A step may have several batches
    (accumulation) and several processes (DDP): each batch is differentiated as it comes, and the
    gradients are brought to the denominator of the whole step at its end, so that one large batch
    or many small ones give the same step. That is why optimisation is manual, and why gradients are
    added up here instead of in DDP, whose mean over processes would weigh a small share of a batch
    like a large one.

    A batch that does not fit in memory is split in two, as often as need be. A loss that is no
    number, or below zero where none can be, ends training with a `DivergenceError`, before the
    files of its epoch are written.

    Args:
        model: what is trained.
        make_optimizer: called with the parameters.
        make_lr_scheduler: called with the optimizer; stepped once per epoch. None for no schedule.
        reduction: "per_graph" or "per_node".
        metrics: names or dotted paths of metrics; None for those of the model's head.
        monitor: the metric that chooses the best epoch, such as val/rmse.
        accumulate: batches per step.
        clip: largest norm of the gradient, or None.
        policy: scheduling policy, for halves of a batch.
        stages: what is frozen when; None for one stage in which nothing is.
        lr_factors: part of the model -> factor of its learning rate.

    Attributes:
        rate: the learning rate of the last whole epoch, without factors.

    Raises:
        ConfigError: if a stage freezes what is not there, or all there is, or a factor is given to
            what is not there.
    """

    _weights: Sequence[torch.nn.Parameter] = ()  # found once an epoch, not twice a step

    def __init__(
        self,
        model: Model,
        make_optimizer: Callable[..., Optimizer],
        make_lr_scheduler: Callable[..., Any] | None = None,
        reduction: str = "per_graph",
        metrics: Sequence[str] | None = None,
        monitor: str = "val/loss",
        accumulate: int = 1,
        clip: float | None = None,
        policy: str = "depth",
        stages: Sequence[Stage] | None = None,
        lr_factors: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.make_optimizer = make_optimizer
        self.make_lr_scheduler = make_lr_scheduler
        self.reduction = reduction
        self.accumulate = accumulate
        self.clip = clip
        self.policy = policy
        self.monitor = monitor
        self.head_metrics = HeadMetrics.of(model.head, metrics, reduction)
        self.staged = StagedModel(model, stages or [Stage(1)])
        self.lr_factors = read_factors(model, lr_factors or {})
        self.rate = 0.0
        self._told = ""  # of the stage
        self.metrics: Metrics = {}
        self._val_rows: list[tuple[int, EvalRows]] = []
        self._first_count = self._count = self._epoch_count = 0.0
        self._epoch_loss = torch.zeros(())
        self._least_loss = torch.zeros(())  # of a row, in this epoch; NaN if one is

    @property
    def mode(self) -> str:
        """The direction of the monitored metric: "min" if the least value is best, or "max"."""
        return self.head_metrics.mode(self.monitor)

    @property
    def running_loss(self) -> float:
        """The mean loss of this epoch so far; of one process the share that it computed."""
        return self._epoch_loss.item() / self._epoch_count if self._epoch_count else float("nan")

    def configure_optimizers(self) -> Any:
        """The optimizer of the current stage and the schedule of its learning rate."""
        parameters = self._learning()
        stage = self.staged.stage
        make = self.make_optimizer
        if stage.lr is not None:
            make = partial(make, lr=stage.lr)
        optimizer = build_optimizer(make, parameters, self._sparse_tables(), self.lr_factors)
        if self.make_lr_scheduler is None:
            return optimizer
        options = {}
        keywords = getattr(self.make_lr_scheduler, "keywords", {})
        if getattr(self.make_lr_scheduler, "func", None) is ReduceLROnPlateau:
            options = {"mode": self.mode, **keywords}
        if len(self.staged.stages) > 1:  # a schedule over all epochs is one over the stage's
            total = self.staged.num_epochs
            options |= {n: stage.epochs for n in LENGTHS if keywords.get(n) == total}
        before = [float(group["lr"]) for group in optimizer.param_groups]
        scheduler = self.make_lr_scheduler(optimizer, **options)
        refuse_lost_factors(optimizer, before)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Goes to the stage of the last epoch: the optimizer in a checkpoint is that stage's."""
        self.staged.enter(checkpoint["epoch"])

    def on_train_epoch_start(self) -> None:
        """Starts the epoch's mean loss, and a stage if one begins."""
        if self.staged.enter(self.current_epoch):
            self.trainer.strategy.setup_optimizers(self.trainer)
        self.staged.hold()
        if self.trainer.is_global_zero and str(self.staged) != self._told:
            self._told = str(self.staged)
            print(self._told, flush=True)
        self._epoch_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._least_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._epoch_count = 0.0
        self._weights = list(self.parameters())

    def training_step(self, batch: Batch, batch_index: int) -> None:
        """Adds a batch to the gradients; takes the step when it is complete."""
        count = self._step_count(batch)
        if self._first_count == 0:
            self._first_count = count
        self._count += count
        self._epoch_count += count
        self._add_gradients(batch)
        if (batch_index + 1) % self.accumulate and not self.trainer.is_last_batch:
            return
        if self.device.type == "cpu":  # reading a number of a GPU would wait for it in every step
            self._refuse_divergence()
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        optimizer.step()
        optimizer.zero_grad()
        self._first_count = self._count = 0.0

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of all parameters, or, if memory runs out, of none."""
        parameters = self._learning()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        seen: set[int] = set()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                continue
            # autograd may give one tensor to two parameters, or an expanded one; ours is written to
            if not gradient.is_sparse:
                if not gradient.is_contiguous() or gradient.data_ptr() in seen:
                    gradient = gradient.clone(memory_format=torch.contiguous_format)
                seen.add(gradient.data_ptr())
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Brings the gradients to the denominator of the whole step and clips them."""
        parameters = self._learning()
        if self.trainer.world_size > 1:
            add_over_processes(parameters)
        if 0 < self._first_count < self._count:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad *= self._first_count / self._count
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)

    def on_validation_epoch_start(self) -> None:
        """Forgets the rows of the last validation."""
        self._refuse_divergence()
        self._val_rows = []

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Collects the rows of a batch; processes take turns, so the batch knows its number."""
        number = batch_index * self.trainer.world_size + self.trainer.global_rank
        self._val_rows.append((number, rows_of(self.model, batch, self.policy)))

    def on_validation_epoch_end(self) -> None:
        """Computes the metrics over all rows of all processes, each counted once."""
        rows = gather(self._val_rows)
        self._val_rows = []
        refuse_nan(rows.loss, f"of the validation part after epoch {self.current_epoch + 1}")
        self.metrics = {f"val/{name}": value for name, value in self.head_metrics(rows).items()}
        nan = float("nan")
        self.log_dict({k: nan if v is None else v for k, v in self.metrics.items()})

    def on_train_epoch_end(self) -> None:
        """Logs the mean loss and steps the learning rate."""
        self._refuse_divergence()
        loss = self._over_processes(self._epoch_loss.item())
        self.log("train/loss", loss / self._epoch_count if self._epoch_count else float("nan"))
        self.rate = rate_without_factors(self.trainer.optimizers[0], self.lr_factors)
        scheduler = self.lr_schedulers()
        assert not isinstance(scheduler, list)
        if isinstance(scheduler, ReduceLROnPlateau):
            value = self.metrics.get(self.monitor)
            if value is not None:
                scheduler.step(value)
        elif scheduler is not None:
            scheduler.step()

    def _learning(self) -> list[torch.nn.Parameter]:
        """The weights that are not frozen."""
        return [weight for weight in self._weights or self.parameters() if weight.requires_grad]

    def _sparse_tables(self) -> list[torch.nn.Parameter]:
        """Lets tables of embeddings have sparse gradients where the steps stay the same.

        A batch names few rows of a large vocabulary, but a dense gradient is written, and the whole
        table updated, whatever it names. Processes and clipping add and measure dense gradients.
        """
        dense = self.clip is not None or self._is_distributed or self.accumulate > 1
        if dense or not skips_absent_rows(self.make_optimizer):
            return []
        found = []
        for module in self.model.modules():
            if isinstance(module, ColumnEncoder) and module.table is not None:
                module.sparse = True
                found.append(module.table)
        return [table for table in found if table.requires_grad]

    @property
    def _is_distributed(self) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def _add_gradients(self, batch: Batch) -> None:
        """Differentiates a batch, in halves where it does not fit in memory."""
        try:
            self._differentiate(batch)
            return
        except MEMORY_ERRORS as error:
            if not is_out_of_memory(error) or batch.num_graphs < 2:
                raise
        # Only here, outside of the handler, has the failed attempt let go of its tensors.
        warnings.warn(
            f"a batch of {batch.num_graphs} graphs and {batch.dag.num_nodes} nodes ran out of "
            "memory and was split in two. Set a smaller data.batch_size or data.max_nodes.",
            stacklevel=2,
        )
        for half in halves(batch, self.model.plan, self.policy):
            self._add_gradients(half)

    def _differentiate(self, batch: Batch) -> None:
        head = self.model.head
        losses = head.losses(self.model(batch), head.target_rows(batch.dag))
        weights = batch.dag.weights()
        if weights is not None:
            times = weights[head.row_graph(batch.dag)].to(losses.dtype)
            losses = torch.where(times > 0, losses * times, 0.0)
        loss = losses.sum()
        self._epoch_loss += loss.detach()
        if len(losses):
            self._least_loss = torch.minimum(self._least_loss, losses.detach().min().double())
        if loss.requires_grad and self._first_count:
            with self._no_sync():
                self.manual_backward(loss / self._first_count)

    def _refuse_divergence(self) -> None:
        """Ends training at a loss that cannot be; see the class."""
        total, least = self._epoch_loss.item(), self._least_loss.item()
        if not math.isfinite(total) or math.isnan(least):
            raise _divergence(f"the loss of epoch {self.current_epoch + 1} is {total:g}")
        if least < -ROUNDING and not self.model.head.losses_may_be_negative:
            raise DivergenceError(
                f"a record has the loss {least:g} in epoch {self.current_epoch + 1}, but "
                f"{type(self.model.head).__name__} has none below zero: a weight of a record, a "
                f"target or a class is negative. {_KEPT} Correct the weights."
            )

    def _step_count(self, batch: Batch) -> float:
        """The denominator that a batch adds, over all processes."""
        head, weights = self.model.head, batch.dag.weights()
        count: float = batch.num_graphs if weights is None else float(weights.double().sum())
        if self.reduction == "per_node":
            measured = head.is_measured(head.target_rows(batch.dag))
            if weights is not None:
                measured = measured * weights.double()[head.row_graph(batch.dag)]
            count = float(measured.sum())
        return self._over_processes(count)

    def _over_processes(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.trainer.world_size == 1:
            return float(value)
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return total.item()

    def _no_sync(self) -> AbstractContextManager[Any]:
        strategy = self.trainer.strategy
        if isinstance(strategy, ParallelStrategy):
            return strategy.block_backward_sync()
        return nullcontext()


def refuse_nan(losses: Tensor, where: str) -> None:
    """Refuses losses among which there is NaN.

    Raises:
        DivergenceError: if there is; it says where.
    """
    if bool(losses.isnan().any()):
        raise _divergence(f"the loss {where} is nan")


def _divergence(fault: str) -> DivergenceError:
    return DivergenceError(
        f"{fault}, so training ends. {_KEPT} Take a lower optimizer.lr or "
        "trainer.gradient_clip_val=1, and look for targets or inputs of extreme size."
    )


def add_over_processes(parameters: list[torch.nn.Parameter]) -> None:
    """Replaces every gradient by its sum over all processes.

    An absent one counts as zero, and stays absent if no process has one: then no graph of the step
    used the parameter, and the optimizer leaves it as it is, as it does in one process.
    """
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    has_grad = flat.new_tensor([p.grad is not None for p in parameters])
    flat = torch.cat([flat, has_grad])
    torch.distributed.all_reduce(flat)
    *parts, counts = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, part, count in zip(parameters, parts, counts.tolist(), strict=True):
        parameter.grad = part.view_as(parameter) if count else None


def make_learner(
    config: Mapping[str, Any], data: DataModule, member: int = 0, begins: bool = True
) -> tuple[Learner, dict[str, Any]]:
    """A fresh model with what trains it, and the config with all that the data decided.

    Args:
        config: a whole config.
        data: what the model is to learn from, prepared.
        member: which member of an ensemble it is.
        begins: whether its weights are to be used; otherwise a checkpoint replaces them, and no
            file of vectors is read.

    Raises:
        ConfigError: if the model does not fit the data, or `monitor` is no metric of it.
    """
    seed_generators(member_seed(config["seed"], member))
    model_config = complete_model_config(
        config["model"],
        data.spec.schema,
        data.encoded("train"),
        data.source.spec().options.get("task"),
        None if data.spec.words is None else data.spec.words.vector_size,
    )
    model = build_model(model_config, data.spec.schema, data.spec.scalers)
    if begins and data.word_vectors is not None:
        set_word_vectors(model, data.spec, data.word_vectors)
    learner = Learner(
        model,
        instantiate(config["optimizer"], "optimizer"),
        instantiate(config["lr_scheduler"], "lr_scheduler"),
        reduction=config["loss"]["reduction"],
        metrics=config.get("metrics"),
        accumulate=config["trainer"]["accumulate_grad_batches"],
        clip=config["trainer"]["gradient_clip_val"],
        stages=read_stages(config),
        lr_factors=config.get("lr_factors"),
    )
    has_roots = bool((data.encoded("val").output_ptr.diff() == 1).all())
    learner.monitor = learner.head_metrics.choose_monitor(config["monitor"], has_roots)
    settings = {**config["data"], **data.inferred_options}
    complete = {"data": settings, "model": model_config, "monitor": learner.monitor}
    return learner, {**config, **complete}
