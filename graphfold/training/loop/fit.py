"""Fitting: Lightning's trainer over a `Learner`, with graphfold's checkpoints."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch.multiprocessing.spawn import ProcessRaisedException

from graphfold.batching import Batch
from graphfold.datasets.loading.data_module import DataModule
from graphfold.datasets.loading.loader import GraphLoader
from graphfold.errors import (
    CheckpointError,
    ConfigError,
    DivergenceError,
    GraphfoldError,
    first_line,
)
from graphfold.training.config.check_parts import OURS
from graphfold.training.config.instantiate import find_target, instantiate
from graphfold.training.console import describe_policy
from graphfold.training.loop.learner import Learner
from graphfold.training.loop.progress import ProgressLine
from graphfold.training.loop.sharing import choose_sharing
from graphfold.training.process.precision import parameter_dtype
from graphfold.training.process.process import keep_memory
from graphfold.training.process.quiet import choose_warnings, quiet_lightning, silence_lightning
from graphfold.training.process.ranks import trainer_settings
from graphfold.training.run.best_and_last import BestAndLast, GraphfoldCheckpoints
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder

#: What an epoch goes through.
PARTS = ("train", "val")


def fit(
    config: Mapping[str, Any],
    folder: RunFolder,
    learner: Learner,
    data: DataModule,
    common: Checkpoint,
    resume: bool,
    order_seed: int | None = None,
    more_callbacks: Sequence[Callback] = (),
) -> None:
    """Trains until the last epoch or early stopping; the results are files of the run folder.

    Args:
        config: the config of the run.
        folder: where checkpoints and logs go.
        learner: what is trained.
        data: what it is trained on, prepared.
        common: what all checkpoints of the run share.
        resume: whether to go on from last.ckpt.
        order_seed: of the order of the records; None for that of the split.
        more_callbacks: those that come after all others.

    Raises:
        KeyboardInterrupt: on Ctrl-C; last.ckpt is that of the last whole epoch.
    """
    for part in PARTS:  # refuses, here and not in a process of its own, too many devices
        data.loader(part, learner.model.passes, "depth", world_size=config["trainer"]["devices"])
    # Lightning does so, too, but after callbacks have copied the model and last.ckpt has been read.
    learner.to(parameter_dtype(config["trainer"]))
    keeper = BestAndLast(folder, learner.monitor, learner.mode)
    callbacks: list[Callback] = [
        ProgressLine(),
        *_callbacks(config, learner),
        keeper,
        *more_callbacks,
    ]
    with quiet_lightning(), _interrupts():
        trainer = make_trainer(config, folder, callbacks, GraphfoldCheckpoints(common))
        model = learner.model
        share = {part: choose_sharing(data, model, part == "train") for part in PARTS}
        loaders = Loaders(data, share, order_seed)
        try:
            trainer.fit(learner, datamodule=loaders, ckpt_path=str(folder.last) if resume else None)
        except (GraphfoldError, MemoryError, ProcessRaisedException):
            raise
        except Exception as error:  # of a damaged file any part may fail in any way
            if not resume or keeper.has_begun:
                raise
            raise CheckpointError(
                f"{folder.last}: its progress cannot be taken up ({first_line(error)}). Restore "
                "the file and config.yaml; or begin anew, with init_from=RUN for the weights."
            ) from error


def make_trainer(
    config: Mapping[str, Any],
    folder: RunFolder,
    callbacks: list[Callback],
    checkpoints: GraphfoldCheckpoints,
) -> Trainer:
    """Lightning's trainer, with its noise off and its files in the run folder."""
    given = {k: v for k, v in config["trainer"].items() if k not in ("_target_", *OURS)}
    arguments = {
        **given,
        **trainer_settings(config["trainer"]),
        "deterministic": config["deterministic"],
        "default_root_dir": str(folder.path),
        "callbacks": callbacks,
        "logger": make_loggers(config, folder),
        "plugins": [checkpoints],
        "use_distributed_sampler": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    try:
        trainer = find_target(config["trainer"]["_target_"], "trainer")(**arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"trainer: {error}. Correct the config.") from error
    assert isinstance(trainer, Trainer)
    # A batch is indices and measurements; the model converts what it computes with.
    trainer.precision_plugin.convert_input = _as_it_is  # type: ignore[method-assign,assignment]
    return trainer


def _as_it_is(batch: Batch) -> Batch:
    return batch


class Loaders(LightningDataModule):
    """Lets every process make its own loaders, once it knows its rank."""

    def __init__(
        self, data: DataModule, share: Mapping[str, bool], order_seed: int | None = None
    ) -> None:
        super().__init__()
        self.order_seed = order_seed
        self.data = data
        self.share = share  # part -> whether equal nodes are computed once

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrives in a process of its own, which needs the settings of this one."""
        keep_memory()
        self.__dict__.update(state)
        choose_warnings()
        silence_lightning()

    def train_dataloader(self) -> GraphLoader:
        """The batches of this process to learn from."""
        return self._loader("train")

    def val_dataloader(self) -> GraphLoader:
        """The batches of this process to choose the model by."""
        return self._loader("val")

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, _: int) -> Batch:
        """The batch on the device of this process."""
        return batch.to(device, non_blocking=True)

    def _loader(self, part: str) -> GraphLoader:
        trainer = self.trainer
        assert trainer is not None
        learner = trainer.lightning_module
        assert isinstance(learner, Learner)
        on_gpu = trainer.strategy.root_device.type == "cuda"
        rank, world_size = trainer.global_rank, trainer.world_size
        loader = self.data.loader(
            part,
            learner.model.passes,
            rank=rank,
            world_size=world_size,
            pin_memory=on_gpu,
            share=self.share[part],
            lowering=learner.model.lowering,
            seed=self.order_seed,
        )
        if part == "train":
            learner.policy = loader.policy
            if loader.calls and rank == 0:
                print(describe_policy(loader.calls), flush=True)
        return loader


def _callbacks(config: Mapping[str, Any], learner: Learner) -> list[Callback]:
    """The callbacks of the config; early stopping learns which metric to watch."""
    made = []
    for name, node in (config["callbacks"] or {}).items():
        if node is None:
            continue
        callback = instantiate(node, f"callbacks.{name}")
        if getattr(callback, "func", None) is EarlyStopping:
            watched = {"monitor": learner.monitor, "mode": learner.mode}
            callback = callback(**watched, check_finite=False, strict=False)
        made.append(callback)
    return made


def make_loggers(config: Mapping[str, Any], folder: RunFolder) -> list[Any]:
    """The loggers of the config, made to write into the run folder.

    Raises:
        ConfigError: if a logger's names lead out of that folder.
    """
    made = []
    for name, node in (config["logger"] or {}).items():
        if node is None:
            continue
        logger = instantiate(node, f"logger.{name}")(save_dir=str(folder.path))
        place = Path(logger.log_dir or folder.path).absolute()
        if not Path(os.path.normpath(place)).is_relative_to(folder.path.absolute()):
            raise ConfigError(
                f"logger.{name} would write to {place}, outside of the run folder. Give it a name "
                "without slashes."
            )
        made.append(logger)
    return made


@contextmanager
def _interrupts() -> Iterator[None]:
    """Lets Ctrl-C end fitting as KeyboardInterrupt; Lightning would leave the process instead."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    except ProcessRaisedException as error:
        cause = str(error).strip().splitlines()[-1]
        name, _, message = cause.partition(": ")
        if name.endswith(f".{DivergenceError.__name__}"):
            raise DivergenceError(message) from error
        raise RuntimeError(f"in process {error.error_index}: {cause}") from error
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
