"""Fitting of one model: files, loggers, batches and random numbers for the loop."""

from __future__ import annotations

from graphfold.datasets.data_module import DataModule
from graphfold.errors import CheckpointError, first_line
from graphfold.loader import GraphLoader
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.callbacks import ProgressLine
from graphfold.training.loop.checks import choose_sharing
from graphfold.training.loop.loggers import make_loggers
from graphfold.training.loop.loop import Loop
from graphfold.training.process.launch import is_first
from graphfold.training.process.process import (
    deterministic_algorithms,
    member_seed,
    seed_generators,
)
from graphfold.training.run.best_and_last import BestAndLast
from graphfold.training.run.checkpoint import Checkpoint, common_checkpoint
from graphfold.training.run.run_folder import RunFolder


def fit_network(
    config: TrainingConfig,
    loop: Loop,
    data: DataModule,
    files: RunFolder,
    member: int,
    last: Checkpoint | None = None,
) -> None:
    """Trains until the last epoch or early stopping, and writes files; loggers stay open.

    Args:
        config: the config of the run.
        loop: the loop, with a new model.
        data: the data, prepared.
        files: the folder of checkpoints and logs.
        member: the number of the model in its ensemble.
        last: the checkpoint to continue from; None for a new training.

    Raises:
        CheckpointError: if it cannot continue from `last`.
        KeyboardInterrupt: on Ctrl-C; last.ckpt is of the last complete epoch.
    """
    single = config.changed({"monitor": loop.monitor, "ensemble": 1})
    common = common_checkpoint(single, data, member)
    if is_first():
        files.best.parent.mkdir(parents=True, exist_ok=True)
    checkpoints = BestAndLast(files, common, loop.monitor, loop.mode)
    # First the files of an epoch, then its line, then callbacks that may read either.
    loop.callbacks[:0] = [checkpoints, ProgressLine(lambda: checkpoints.is_best)]
    loop.loggers = make_loggers(config.logger, common.config, files.path)
    loop.begin()
    if loop.world_size > 1:  # otherwise all draw the same masks of dropout
        seed_generators(member_seed(member_seed(config.seed, member), loop.rank))
    if loop.trainer.limit_val_batches is not None:  # it counts batches of the configured size
        data.scored_batch_size = data.batch_size
    train, val = (_loader(part, loop, data, member) for part in ("train", "val"))
    loop.policy = train.policy
    if last is not None:
        try:
            checkpoints.restore(loop, last)
        except Exception as error:  # a damaged file may raise anything
            raise CheckpointError(
                f"{files.last}: its progress cannot be taken up ({first_line(error)}). Restore "
                "the file and config.yaml; or begin anew, with init_from=RUN for the weights."
            ) from error
    with deterministic_algorithms(config.deterministic):
        loop.fit(train, val)


def _loader(part: str, loop: Loop, data: DataModule, member: int) -> GraphLoader:
    """The batches of a part for this process."""
    return data.loader(
        part,
        loop.model.passes,
        rank=loop.rank,
        world_size=loop.world_size,
        pin_memory=loop.device.type == "cuda",
        share=choose_sharing(data, loop.model, part == "train"),
        lowering=loop.model.lowering,
        seed=member_seed(data.settings.seed, member),
    )
