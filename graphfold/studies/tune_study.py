"""Study: the trials of a search in Optuna's database, run one after another.

A trial is a training run of its own, stopped when it falls behind the others.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from urllib.parse import quote

import optuna
from optuna import Trial, TrialPruned
from optuna.study import StudyDirection
from optuna.trial import TrialState

from graphfold.datasets.data_module import DataModule
from graphfold.errors import DataError, GraphfoldError
from graphfold.recipe import make_loop, start_run
from graphfold.studies.tune_folder import Search, TuneFolder
from graphfold.studies.tune_space import Dimension
from graphfold.studies.tune_tables import (
    REASON,
    best_first,
    counted,
    draw_trials,
    format_trials,
    started,
    write_trials,
)
from graphfold.training.config.compose import compose
from graphfold.training.config.model import decide
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.console import format_value
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.process import prepare_process
from graphfold.training.process.quiet import warnings_once
from graphfold.training.run.initial_weights import make_model
from graphfold.training.run.run_folder import RunFolder


class Pruner(Callback):
    """Reports the monitored metric after every epoch, and ends a trial that is not promising.

    Args:
        trial: what is told, and asked whether to go on.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def on_epoch_saved(self, loop: Loop) -> None:
        """Raises TrialPruned if the trial is to end; an undefined metric is not reported."""
        value = loop.metrics.get(loop.monitor)
        if value is None:
            return
        self.trial.report(value, loop.epoch + 1)
        if self.trial.should_prune():
            raise TrialPruned(f"epoch {loop.epoch + 1}")


def run_trial(trial: Trial, config: TrainingConfig, folder: Path) -> float:
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
        metrics = start_run(config, RunFolder(folder), callbacks=[Pruner(trial)])
    value = metrics.get(str(config.monitor))
    if value is None:
        raise DataError(f"{config.monitor} is undefined in every epoch.")
    return value


#: Directions of improvement, by the mode of a loop.
DIRECTIONS = {"min": StudyDirection.MINIMIZE, "max": StudyDirection.MAXIMIZE}


def choose_monitor(config: TrainingConfig) -> tuple[str, str]:
    """The metric that a config is judged by, and "min" or "max", whichever is better.

    It reads the data and builds the model once, so that what is wrong with them is said at once.
    """
    data = DataModule(**config.data)
    data.prepare()
    decided = decide(config, data)
    loop = make_loop(decided, make_model(decided, data), data)
    return loop.monitor, loop.mode


class Study:
    """The trials of a search.

    Values are chosen by the tree-structured Parzen estimator (Bergstra et al. 2011), trials that
    fall behind are stopped by the median rule (Golovin et al. 2017).

    Args:
        folder: where everything is.
        search: what was asked.
        space: what is tried.
        trusted: the packages that a search out of a folder may name; None for one's own words.

    Raises:
        CheckpointError: if the database cannot be read.
    """

    def __init__(
        self,
        folder: TuneFolder,
        search: Search,
        space: Sequence[Dimension],
        trusted: Collection[str] | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder = folder
        self.search = search
        self.space = space
        self.trusted = trusted
        self.keys = [dimension.key for dimension in space]
        with folder.readable_study():
            self.study = self._open()
            begun = len(self.study.get_trials(deepcopy=False))
        # With the seed of the search alone a continued one would try the first values again.
        self.study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=search.startup_trials, seed=search.seed + begun
        )
        self.study.pruner = (
            optuna.pruners.MedianPruner(search.startup_trials, search.warmup_epochs)
            if search.prune
            else optuna.pruners.NopPruner()
        )
        with folder.readable_study():
            self._try_interrupted_anew()

    def run(self) -> None:
        """Runs trials until there are as many as were asked for; a failed one counts.

        Raises:
            KeyboardInterrupt: on Ctrl-C; the trial is tried anew when the search goes on.
        """
        with warnings_once(), self.folder.readable_study():
            while (done := len(counted(self.study))) < self.search.trials:
                self._run_one(f"[{done + 1}/{self.search.trials}]")
                write_trials(self.study, self.keys, self.search.monitor, self.folder.table)

    def table(self) -> str:
        """The best trials as text; writes trials.csv, too."""
        write_trials(self.study, self.keys, self.search.monitor, self.folder.table)
        return format_trials(self.study, self.keys, self.search.monitor)

    def draw(self) -> None:
        """Writes the plot."""
        draw_trials(self.study, self.space, self.search.monitor, self.folder.plot)

    def best_overrides(self) -> list[str] | None:
        """The overrides of the best trial; None if no trial came to its end."""
        done = best_first(self.study)
        if not done:
            return None
        values = done[0].params
        own = [dimension.override(values.get(dimension.key)) for dimension in self.space]
        return [*self.search.overrides, *own]

    def _open(self) -> optuna.Study:
        """The study in the folder, or a new one."""
        address = f"sqlite:///{quote(str(self.folder.study.absolute()))}"
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage(address),
            study_name="tune",
            direction=DIRECTIONS[self.search.direction],
            load_if_exists=True,
        )
        if study.direction is not DIRECTIONS[self.search.direction]:
            raise ValueError(f"it is to {study.direction.name.lower()}, the search is not")
        return study

    def _run_one(self, place: str) -> None:
        trial = self.study.ask()
        own = [dimension.suggest(trial) for dimension in self.space]
        begin = time.perf_counter()
        result = self._result(trial, own)
        print(f"{place} {' '.join(own)}  {result}  {time.perf_counter() - begin:.1f} s", flush=True)

    def _result(self, trial: Trial, own: Sequence[str]) -> str:
        """Runs a trial and tells Optuna what came of it; returns the same in words."""
        try:
            value = run_trial(trial, self._config(own), self.folder.trial(trial.number))
        except TrialPruned as error:
            self.study.tell(trial, state=TrialState.PRUNED)
            return f"stopped after {error}"
        except Exception as error:  # one bad combination does not end the search: it is recorded
            reason = error.message if isinstance(error, GraphfoldError) else _describe(error)
            trial.set_user_attr(REASON, reason)
            self.study.tell(trial, state=TrialState.FAIL)
            return f"failed: {reason}"
        self.study.tell(trial, value)
        is_best = best_first(self.study)[0].number == trial.number
        return f"{self.search.monitor} {format_value(value, 4)}{' (best)' if is_best else ''}"

    def _config(self, own: Sequence[str]) -> TrainingConfig:
        words = [*self.search.overrides, *own]
        config = compose(words, self.search.config_folder, trusted=self.trusted).config
        prepare_process(config.threads)
        return config.changed({"monitor": self.search.monitor})

    def _try_interrupted_anew(self) -> None:
        """Ends the trials that were running when their process ended, and queues their values."""
        for trial in started(self.study):
            if trial.state is TrialState.RUNNING:
                self.study.tell(trial.number, state=TrialState.FAIL)
                if trial.params:
                    self.study.enqueue_trial(trial.params)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
