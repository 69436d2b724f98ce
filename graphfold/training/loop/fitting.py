"""Fitting: a network in epochs, in one process or several; other models at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from graphfold.dag.schema import Schema, bound_column
from graphfold.datasets.data_module import DataModule
from graphfold.errors import CheckpointError, ConfigError, GraphfoldError, first_line
from graphfold.layers.baselines.fitted_model import FittedModel
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.console import describe_policy
from graphfold.training.loop.callbacks import (
    ProgressLine,
    end_loggers,
    make_loggers,
)
from graphfold.training.loop.checks import choose_sharing
from graphfold.training.loop.loop import Loop, refuse_nan
from graphfold.training.process.launch import launch
from graphfold.training.process.process import (
    deterministic_algorithms,
    ending_by_sigterm,
    member_seed,
    seed_generators,
)
from graphfold.training.process.ranks import num_processes, run_in_processes
from graphfold.training.run.best_and_last import BestAndLast, write_checkpoint, write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics, score


def fit_network(
    config: TrainingConfig,
    loop: Loop,
    data: DataModule,
    files: RunFolder,
    common: Checkpoint,
    resume: bool,
) -> None:
    """Trains until the last epoch or early stopping, in one process or several; leaves files.

    The loggers of the loop stay open.

    Args:
        config: of the run.
        loop: what trains, with a fresh model.
        data: what it is trained on, prepared.
        files: where checkpoints and logs go.
        common: what all checkpoints of the run share.
        resume: whether to go on from last.ckpt.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM; last.ckpt is that of the last whole epoch.
    """
    count = num_processes(loop.trainer)
    is_copied = count > 1 and launch() is None
    for part in ("train", "val"):  # refuses, here and not in a process of its own, too many devices
        data.loader(part, loop.model.passes, "depth", world_size=count)
    with ending_by_sigterm():
        arguments = config, loop, data, files, common, resume
        run_in_processes(loop.trainer, _fit_in_process, *arguments, is_copied)
    if is_copied:  # the loggers of its process have ended with it
        loop.loggers = make_loggers(config.logger, common.config, files.path)


def _fit_in_process(
    device: torch.device,
    config: TrainingConfig,
    loop: Loop,
    data: DataModule,
    files: RunFolder,
    common: Checkpoint,
    resume: bool,
    is_copied: bool,
) -> None:
    """Trains in one of the processes of a training, whose loop may be a copy."""
    kept = BestAndLast(files, common, loop.monitor, loop.mode)
    # First the files of an epoch, then its line, then who asks for either.
    loop.callbacks[:0] = [kept, ProgressLine(lambda: kept.is_best)]
    loop.loggers = make_loggers(config.logger, common.config, files.path)
    loop.begin(device)
    member = common.progress["member"]
    if loop.world_size > 1:  # or all would draw the same masks of dropout
        seed_generators(member_seed(member_seed(config.seed, member), loop.rank))
    if loop.trainer.limit_val_batches is not None:  # it counts batches of the size that is set
        data.scored_batch_size = data.batch_size
    batches = {}
    for part in ("train", "val"):
        batches[part] = data.loader(
            part,
            loop.model.passes,
            rank=loop.rank,
            world_size=loop.world_size,
            pin_memory=device.type == "cuda",
            share=choose_sharing(data, loop.model, part == "train"),
            lowering=loop.model.lowering,
            seed=member_seed(data.settings.seed, member),
        )
    loop.policy, calls = batches["train"].policy, batches["train"].calls
    if calls and loop.is_first:
        print(describe_policy(calls), flush=True)
    try:
        if resume:
            kept.take_up(loop)
        with deterministic_algorithms(config.deterministic):
            loop.fit(batches["train"], batches["val"])
        if is_copied and loop.is_first:
            end_loggers(loop.loggers)
    except (GraphfoldError, MemoryError):
        raise
    except Exception as error:  # of a damaged file any part may fail in any way
        if not resume or loop.has_stepped:
            raise
        raise CheckpointError(
            f"{files.last}: its progress cannot be taken up ({first_line(error)}). Restore the "
            "file and config.yaml; or begin anew, with init_from=RUN for the weights."
        ) from error


#: Options of heads that say what an error costs.
_OF_THE_LOSS = ("loss", "delta", "target_weights", "class_weights")


def fit_once(
    config: TrainingConfig,
    model: FittedModel,
    loop: Loop,
    data: DataModule,
    files: RunFolder,
    common: Checkpoint,
) -> None:
    """Fits a model to the training part, and writes best.ckpt, last.ckpt, metrics.csv and logs.

    Nothing is chosen by the validation part, which may be empty.

    Args:
        config: of the run.
        model: what is fitted.
        loop: what knows the metrics and the options of training.
        data: what it is fitted to, prepared.
        files: where the files go.
        common: what all checkpoints of the run share.

    Raises:
        ConfigError: if the config asks for several processes, or for less than single precision, or
            records have bounds, or the head a loss of its own.
    """
    if loop.trainer.devices > 1:
        raise ConfigError(
            f"{type(model).__name__} is fitted at once and in one process. Leave out "
            "trainer.devices; threads=N sets its threads."
        )
    if loop.trainer.precision not in (None, 32, 64, "32", "64", "32-true", "64-true"):
        raise ConfigError(
            f"trainer.precision is {loop.trainer.precision}, in which what "
            f"{type(model).__name__} compares would be rounded. Set trainer.precision=32-true."
        )
    train = data.encoded("train")
    _refuse_unread(config.mapping["model"]["head"], model, train.schema)
    model.fit(train)
    metrics: Metrics = {}
    if len(data.split.val):
        rows = score(model, data.loader("val", model.passes, "depth"))
        refuse_nan(rows.loss, "of the validation part")
        metrics = {f"val/{name}": value for name, value in loop.head_metrics(rows).items()}
    history: list[Metrics] = [{"epoch": 1, "step": 1, **metrics}]
    write_history(files.history, history)
    progress: dict[str, Any] = {
        "history": history,
        "best": None,
        "is_finished": True,
        "callbacks": {},
    }
    for path, more in ((files.best, {}), (files.last, progress)):
        write_checkpoint(path, common, model.state_dict(), {"epoch": 0, **more})
    loop.loggers = make_loggers(config.logger, common.config, files.path)
    loop.step = 1
    loop.log(metrics)
    shown = ", ".join(f"{k} {v:.4f}" for k, v in metrics.items() if k == loop.monitor and v)
    print(f"fitted {type(model).__name__}  {shown}".rstrip(), flush=True)


def _refuse_unread(head: Mapping[str, Any], model: FittedModel, schema: Schema) -> None:
    """Refuses bounds and losses, which would otherwise be left out without a word."""
    names = {column.name for column in schema.graph_features}
    unread = {
        "data.bounded_targets": any(bound_column(name) in names for name in model.head.targets),
        **{f"model.head.{key}": head.get(key) is not None for key in _OF_THE_LOSS},
    }
    for option, is_there in unread.items():
        if is_there:
            raise ConfigError(
                f"{type(model).__name__} does not read {option}. Leave it out, or choose a model "
                "that is trained in epochs."
            )
