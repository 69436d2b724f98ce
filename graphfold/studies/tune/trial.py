"""One trial: a training run of its own, stopped when it falls behind the others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from optuna import Trial, TrialPruned

from graphfold.errors import DataError
from graphfold.recipe import train
from graphfold.training.loop.learner import Learner
from graphfold.training.run.run_folder import RunFolder


class Pruner(CheckpointCallback):
    """Reports the monitored metric after every epoch, and ends a trial that is not promising.

    To Lightning it is a checkpoint callback, so it comes when the files of the epoch are written.

    Args:
        trial: what is told, and asked whether to go on.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        """Raises TrialPruned if the trial is to end; an undefined metric is not reported."""
        value = pl_module.metrics.get(pl_module.monitor)
        if value is None:
            return
        self.trial.report(value, trainer.current_epoch + 1)
        if self.trial.should_prune():
            raise TrialPruned(f"epoch {trainer.current_epoch + 1}")


def run_trial(trial: Trial, config: Mapping[str, Any], folder: Path) -> float:
    """Trains in a folder; what `graphfold train` would print goes into its log.txt.

    Args:
        trial: of the study.
        config: a whole config, with the metric to monitor.
        folder: of the trial.

    Returns:
        The monitored metric of the best epoch.

    Raises:
        TrialPruned: if the trial was stopped.
        GraphfoldError: if the config cannot be trained, or the metric is undefined.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "w", encoding="utf-8") as log, redirect_stdout(log):
        metrics = train(config, RunFolder(folder), callbacks=[Pruner(trial)])
    value = metrics.get(config["monitor"])
    if value is None:
        raise DataError(f"{config['monitor']} is undefined in every epoch.")
    return value
