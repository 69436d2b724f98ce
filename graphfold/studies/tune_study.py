"""Study: the trials of a search in Optuna's database, run one after another in each worker.

A trial is a training run of its own, stopped when it falls behind the others. The workers of a
search are processes that share its database, and know each other by it alone.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna import Trial, TrialPruned
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError, DataError, GraphfoldError
from graphfold.recipe import make_loop, start_run
from graphfold.studies.tune_folder import Search, TuneFolder, without_password
from graphfold.studies.tune_space import Dimension
from graphfold.studies.tune_tables import (
    BEYOND,
    INTERRUPTED,
    REASON,
    best_first,
    counted,
    draw_trials,
    format_trials,
    running,
    state_of,
    write_trials,
)
from graphfold.training.config.compose import compose
from graphfold.training.config.model import decide
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.console import format_value
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.process import member_seed, prepare_process
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
    fall behind are stopped by the median rule (Golovin et al. 2017). What is drawn for a trial
    depends on its number and the trials before it, so a search that goes on, and other workers,
    draw other values.

    Args:
        folder: where everything is.
        search: what was asked.
        space: what is tried.
        trusted: the packages that a search out of a folder may name; None for one's own words.

    Raises:
        CheckpointError: if the database cannot be read.
        ConfigError: if the database holds another search of this name.
    """

    def __init__(
        self,
        folder: TuneFolder,
        search: Search,
        space: Sequence[Dimension],
        trusted: Collection[str] | None = None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder = folder
        self.search = search
        self.space = space
        self.trusted = trusted
        self.keys = [dimension.key for dimension in space]
        self._is_waiting = False
        self._number: int | None = None  # of the trial that runs
        self._place = ""  # the same among those that count
        with self._readable():
            self.study = self._open()
        self.study.pruner = (
            optuna.pruners.MedianPruner(search.startup_trials, search.warmup_epochs)
            if search.prune
            else optuna.pruners.NopPruner()
        )
        with self._readable():
            if search.storage is None:  # who runs in the folder is alone: see its lock
                self._try_interrupted_anew()

    def run(self) -> None:
        """Runs trials until there are as many as were asked for; a failed one counts.

        Raises:
            KeyboardInterrupt: on Ctrl-C; the trial is tried anew when the search goes on.
        """
        with warnings_once(), self._readable():
            while (done := len(counted(self.study))) < self.search.trials:
                if done + len(running(self.study)) < self.search.trials:
                    self._run_one()
                else:
                    self._wait()
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
        return [*self.search.overrides, *self._overrides(done[0])]

    def _overrides(self, trial: FrozenTrial) -> list[str]:
        return [dimension.override(trial.params.get(dimension.key)) for dimension in self.space]

    def _readable(self) -> AbstractContextManager[None]:
        return self.folder.readable_study(self.search.storage)

    def _open(self) -> optuna.Study:
        """The study in its database, or a new one."""
        study = optuna.create_study(
            storage=self._storage(),
            study_name="tune" if self.search.storage is None else self.search.study,
            direction=DIRECTIONS[self.search.direction],
            load_if_exists=True,
        )
        if self.search.storage is not None:
            self._refuse_another(study)
        if study.direction is not DIRECTIONS[self.search.direction]:
            raise ValueError(f"it is to {study.direction.name.lower()}, the search is not")
        return study

    def _storage(self) -> optuna.storages.RDBStorage:
        if self.search.storage is None:
            address = f"sqlite:///{quote(str(self.folder.study.absolute()))}"
            return optuna.storages.RDBStorage(address)
        for _ in range(_TRIES - 1):
            with suppress(SQLAlchemyError, StorageInternalError):
                return self._shared_storage(self.search.storage)
            time.sleep(1)  # another worker is making the same tables
        return self._shared_storage(self.search.storage)

    def _shared_storage(self, address: str) -> optuna.storages.RDBStorage:
        options: dict[str, Any] = {}
        if address.startswith("sqlite"):  # other workers may be writing
            options["engine_kwargs"] = {"connect_args": {"timeout": _PATIENCE}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return optuna.storages.RDBStorage(
                address,
                heartbeat_interval=self.search.heartbeat,
                heartbeat_stale_trial_callback=self._give_up,
                **options,
            )

    def _refuse_another(self, study: optuna.Study) -> None:
        """Refuses a study of the same name that is no part of this search."""
        definition = json.loads(json.dumps(self.search.definition))
        other = study.user_attrs.get(_DEFINITION)
        if other is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(_DEFINITION, definition)
            return
        differing = [key for key in definition if (other or {}).get(key) != definition[key]]
        if differing:
            raise ConfigError(
                f"{without_password(str(self.search.storage))} has a study '{self.search.study}' "
                f"of another search: {', '.join(differing)} differ. Set tune.study to a new name, "
                "or give all workers the same overrides."
            )

    def _run_one(self) -> None:
        """Runs a trial and prints the result."""

        def tell(study: optuna.Study, trial: FrozenTrial) -> None:
            if BEYOND not in trial.user_attrs:
                seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
                words = [self._place, *self._overrides(trial)]
                print(f"{' '.join(words)}  {self._result(trial)}  {seconds:.1f} s", flush=True)

        self._number = None
        try:
            self.study.optimize(self._value, n_trials=1, catch=(Exception,), callbacks=[tell])
        except BaseException as error:
            if self._number is None:
                raise
            trial = self.study.get_trials(deepcopy=False)[self._number]
            if isinstance(error, KeyboardInterrupt):
                self._try_anew(trial)
                raise
            if state_of(trial) != INTERRUPTED:
                raise
            print(f"{self._place} came too late: other workers had given up trial {trial.number}.")

    def _value(self, trial: Trial) -> float:
        """Trains with the values that are drawn; one bad combination does not end the search."""
        self._number = trial.number
        begun = [*counted(self.study), *running(self.study)]
        before = sum(other.number < trial.number for other in begun)
        self._place = f"[{before + 1}/{self.search.trials}]"
        if before >= self.search.trials:
            trial.set_user_attr(BEYOND, True)  # other workers were faster
            raise RuntimeError("beyond the number of trials")
        self.study.sampler = self._sampler(trial.number)
        own = [dimension.suggest(trial) for dimension in self.space]
        try:
            return run_trial(trial, self._config(own), self.folder.trial(trial.number))
        except TrialPruned:
            raise
        except Exception as error:
            reason = error.message if isinstance(error, GraphfoldError) else _describe(error)
            trial.set_user_attr(REASON, reason)
            raise

    def _sampler(self, number: int) -> optuna.samplers.TPESampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return optuna.samplers.TPESampler(
                n_startup_trials=self.search.startup_trials,
                seed=member_seed(self.search.seed, number),
                constant_liar=True,  # workers that draw at the same time draw different values
            )

    def _result(self, trial: FrozenTrial) -> str:
        if trial.state is TrialState.PRUNED:
            return f"stopped after epoch {trial.last_step}"
        if trial.value is None:
            return f"failed: {trial.user_attrs.get(REASON)}"
        is_best = best_first(self.study)[0].number == trial.number
        value = format_value(trial.value, 4)
        return f"{self.search.monitor} {value}{' (best)' if is_best else ''}"

    def _config(self, own: Sequence[str]) -> TrainingConfig:
        words = [*self.search.overrides, *own]
        config = compose(words, self.search.config_folder, trusted=self.trusted).config
        prepare_process(config.threads)
        return config.changed({"monitor": self.search.monitor})

    def _wait(self) -> None:
        """Waits for the last trials, which run in other workers, for a while."""
        if not self._is_waiting:
            print("the last trials run in other workers: waiting for them", flush=True)
            self._is_waiting = True
        time.sleep(min(self.search.heartbeat, _WAIT))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)

    def _give_up(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Called by the first worker that finds a trial without a sign of life."""
        silence = 2 * self.search.heartbeat
        print(
            f"trial {trial.number}: its worker has given no sign of life for {silence} s. The "
            "values are tried anew.",
            flush=True,
        )
        self._try_anew(trial)

    def _try_interrupted_anew(self) -> None:
        """Ends the trials that were running when their process ended, and queues their values."""
        for trial in running(self.study):
            self.study.tell(trial.number, state=TrialState.FAIL)
            self._try_anew(trial)

    def _try_anew(self, trial: FrozenTrial) -> None:
        if trial.params:
            self.study.enqueue_trial(trial.params)


#: The attribute of a study that says which search it is of.
_DEFINITION = "search"

#: Seconds that a worker waits while others write into a file of SQLite, and between two looks.
_PATIENCE, _WAIT = 60, 2

#: So often a worker tries to open a database that others may be opening for the first time.
_TRIES = 3


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
