"""Fitting of one model: its files, loggers, batches and random numbers around the loop."""

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
    """Trains until the last epoch or early stopping; leaves files, and loggers that are open.

    Args:
        config: of the run.
        loop: what trains, with a fresh model.
        data: what it is trained on, prepared.
        files: where checkpoints and logs go.
        member: the number of the model in its ensemble.
        last: where training goes on; None where it begins.

    Raises:
        CheckpointError: if it cannot go on from `last`.
        KeyboardInterrupt: on Ctrl-C; last.ckpt is that of the last whole epoch.
    """
    own = config.changed({"monitor": loop.monitor, "ensemble": 1})
    common = common_checkpoint(own, data, member)
    if is_first():
        files.best.parent.mkdir(parents=True, exist_ok=True)
    kept = BestAndLast(files, common, loop.monitor, loop.mode)
    # First the files of an epoch, then its line, then who asks for either.
    loop.callbacks[:0] = [kept, ProgressLine(lambda: kept.is_best)]
    loop.loggers = make_loggers(config.logger, common.config, files.path)
    loop.begin()
    if loop.world_size > 1:  # or all would draw the same masks of dropout
        seed_generators(member_seed(member_seed(config.seed, member), loop.rank))
    if loop.trainer.limit_val_batches is not None:  # it counts batches of the size that is set
        data.scored_batch_size = data.batch_size
    train, val = (_loader(part, loop, data, member) for part in ("train", "val"))
    loop.policy = train.policy
    if last is not None:
        try:
            kept.restore(loop, last)
        except Exception as error:  # of a damaged file any part may fail in any way
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
