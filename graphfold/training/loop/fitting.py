"""Fitting of a network in epochs, in one process or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphfold.dag.schema import Schema, bound_column
from graphfold.datasets.data_module import DataModule
from graphfold.errors import CheckpointError, GraphfoldError, first_line
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.callbacks import ProgressLine
from graphfold.training.loop.checks import choose_sharing
from graphfold.training.loop.loggers import make_loggers
from graphfold.training.loop.loop import Loop, refuse_nan
from graphfold.training.process.process import (
    deterministic_algorithms,
    member_seed,
    seed_generators,
)
from graphfold.training.run.best_and_last import BestAndLast, write_checkpoint, write_history
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder


def fit_network(
    config: TrainingConfig,
    loop: Loop,
    data: DataModule,
    files: RunFolder,
    common: Checkpoint,
    resume: bool,
) -> None:
    """Trains until the last epoch or early stopping, and leaves files.

    The loggers of the loop stay open.

    Args:
        config: of the run.
        loop: what trains, with a fresh model.
        data: what it is trained on, prepared.
        files: where checkpoints and logs go.
        common: what all checkpoints of the run share.
        resume: whether to go on from last.ckpt.

    Raises:
        KeyboardInterrupt: on Ctrl-C; last.ckpt is that of the last whole epoch.
    """
    kept = BestAndLast(files, common, loop.monitor, loop.mode)
    # First the files of an epoch, then its line, then who asks for either.
    loop.callbacks[:0] = [kept, ProgressLine(lambda: kept.is_best)]
    loop.loggers = make_loggers(config.logger, common.config, files.path)
    loop.begin()
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
            pin_memory=loop.device.type == "cuda",
            share=choose_sharing(data, loop.model, part == "train"),
            lowering=loop.model.lowering,
            seed=member_seed(data.settings.seed, member),
        )
    loop.policy = batches["train"].policy
    try:
        if resume:
            kept.restore(loop)
        with deterministic_algorithms(config.deterministic):
            loop.fit(batches["train"], batches["val"])
    except (GraphfoldError, MemoryError):
        raise
    except Exception as error:  # of a damaged file any part may fail in any way
        if not resume or loop.has_stepped:
            raise
        raise CheckpointError(
            f"{files.last}: its progress cannot be taken up ({first_line(error)}). Restore the "
            "file and config.yaml; or begin anew, with init_from=RUN for the weights."
        ) from error
