"""`graphfold tune`: a search over settings by Optuna; each trial is a run.

Optuna draws the values, stops trials that fall behind and keeps the study: in study.log of the
folder, or in a database. Started again with the same folder, or beside it as a second worker, a
search goes on; `optuna-dashboard` shows it.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import IntervalSweep, Override

from graphfold.datasets.data_module import DataModule
from graphfold.errors import ConfigError, DataError, GraphfoldError, first_line
from graphfold.files import refuse_links
from graphfold.recipe import make_loop, start_run
from graphfold.training.config.build_model import decide
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import TUNE, Sources, compose, split_sweeping
from graphfold.training.config.instantiate import instantiate
from graphfold.training.config.overrides import parse_overrides
from graphfold.training.config.training_config import TrainingConfig
from graphfold.training.loop.loop import Callback, Loop
from graphfold.training.process.process import prepare_process
from graphfold.training.run.initial_weights import make_model
from graphfold.training.run.run_folder import RunFolder

if TYPE_CHECKING:
    import optuna

#: Overrides of the search itself, not of its trials.
_OF_SEARCH = ("tune.", "tune=", "hydra.")

#: The names in the folder of a search.
STUDY, TRIALS = "study.log", "trials"


@dataclass(frozen=True)
class Search:
    """A search as the words of the command describe it.

    Args:
        folder: where its study and the run folders of its trials are.
        settings: the config group `tune`.
        words: overrides of every trial.
        space: overrides with several values, or a range.
        config_dir: a further folder of config files.
    """

    folder: Path
    settings: dict[str, Any]
    words: list[str]
    space: list[Override]
    config_dir: Path | None = None

    def config(self, *values: str) -> TrainingConfig:
        """The config of a trial with these values."""
        return compose([*self.words, *values], self.config_dir).config

    def values(self, trial: optuna.trial.BaseTrial) -> list[str]:
        """The overrides of a trial."""
        return [_suggest(trial, override) for override in self.space]

    def check(self) -> None:
        """Refuses values that no config can have, before the first trial."""
        for override in self.space:
            for text in _extremes(override):
                check_parts(self.config(f"{override.get_key_element()}={text}"))


def tune_command(overrides: Sequence[str], config_dir: Path | None = None) -> int:
    """Runs the trials of a search that are still to be run.

    Args:
        overrides: of the config; those with several values are what is searched.
        config_dir: a further folder of config files.

    Returns:
        0; 1 if it was interrupted, or no trial came to its end.

    Raises:
        ConfigError: if the config, the space or the study cannot be used, or Optuna is missing.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("graphfold tune needs Optuna. Install graphfold[tune].")
    search = _read(overrides, config_dir)
    search.check()
    monitor, mode = _choose_monitor(search.config())
    search.folder.mkdir(parents=True, exist_ok=True)
    refuse_links(search.folder, (STUDY, TRIALS))
    study = _open(search, mode)
    print(
        f"searching in {search.folder}: {search.settings['trials']} trials, {monitor}", flush=True
    )
    try:
        _run(study, search, monitor)
    except KeyboardInterrupt:
        where = f"hydra.run.dir={search.folder}"
        print(f"interrupted. It goes on with the same words and {where}", file=sys.stderr)
        return 1
    return _report(study, search, monitor)


def _read(overrides: Sequence[str], config_dir: Path | None) -> Search:
    sources = Sources(config_dir)
    words, space = split_sweeping(overrides, sources)
    if any(override.key_or_group == "resume" for override in parse_overrides(words)):
        raise ConfigError(
            "a search goes on when it is started again with the same words and hydra.run.dir. "
            "Leave out resume."
        )
    composed = compose(words, config_dir, TUNE)
    if composed.config.trainer.devices > 1:
        raise ConfigError("tune trains in one process. Set trainer.devices=1.")
    settings = dict(composed.config.mapping["tune"])
    if not space:
        single, space = split_sweeping([str(word) for word in settings["space"]], sources)
        if single or not space:
            raise ConfigError(f"tune.space: {single or 'nothing'} has no values. Write KEY=A,B.")
    words = [word for word in words if not word.lstrip("+~").startswith(_OF_SEARCH)]
    return Search(composed.folder, settings, words, space, config_dir)


def _extremes(override: Override) -> list[str]:
    """Every choice, or both ends of a range."""
    value = override.value()
    if isinstance(value, IntervalSweep):
        return [repr(value.start), repr(value.end)]
    return [*override.sweep_string_iterator()]


def _suggest(trial: optuna.trial.BaseTrial, override: Override) -> str:
    """An override with one of its values; a range between whole numbers has such alone."""
    key, value = override.get_key_element(), override.value()
    if not isinstance(value, IntervalSweep):
        return f"{key}={trial.suggest_categorical(key, _extremes(override))}"
    low, high, log = value.start, value.end, "log" in value.tags
    assert low is not None
    assert high is not None
    if isinstance(low, int) and isinstance(high, int):
        return f"{key}={trial.suggest_int(key, low, high, log=log)}"
    return f"{key}={trial.suggest_float(key, low, high, log=log)!r}"


def _choose_monitor(config: TrainingConfig) -> tuple[str, str]:
    """The metric that a config is judged by, and "min" or "max", whichever is better.

    It reads the data and builds the model once, so that their faults are reported at once.
    """
    data = DataModule(**config.data)
    data.prepare()
    decided = decide(config, data)
    loop = make_loop(decided, make_model(decided, data), data)
    return loop.monitor, loop.mode


def _open(search: Search, mode: str) -> optuna.Study:
    """The study in its storage, or a new one."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    settings, space = search.settings, [str(override.input_line) for override in search.space]
    try:
        file = str(search.folder / STUDY)
        study = optuna.create_study(
            storage=settings["storage"] or optuna.storages.JournalStorage(JournalFileBackend(file)),
            sampler=instantiate(settings["sampler"], "tune.sampler"),
            pruner=instantiate(settings["pruner"], "tune.pruner") or optuna.pruners.NopPruner(),
            study_name=settings["study"],
            direction="minimize" if mode == "min" else "maximize",
            load_if_exists=True,
        )
        before = study.user_attrs.get("space", space)
        study.set_user_attr("space", before)
    except GraphfoldError:
        raise
    except Exception as error:  # of a damaged file, or an address without a server, any
        place = settings["storage"] or search.folder / STUDY
        raise ConfigError(f"{place}: Optuna cannot use it ({first_line(error)}).") from error
    if before != space:
        raise ConfigError(
            f"{search.folder} holds a search over {', '.join(before)}. Choose another "
            "hydra.run.dir, or another tune.study."
        )
    return study


def _run(study: optuna.Study, search: Search, monitor: str) -> None:
    """Runs trials until all workers together have begun `tune.trials` of them."""
    from optuna.study import MaxTrialsCallback

    def train(trial: optuna.Trial) -> float:
        config = search.config(*search.values(trial)).changed({"monitor": monitor})
        folder = RunFolder(search.folder / TRIALS / str(trial.number))
        folder.path.mkdir(parents=True, exist_ok=True)
        prepare_process(config.threads)
        with open(folder.path / "log.txt", "w", encoding="utf-8") as log, redirect_stdout(log):
            value = start_run(config, folder, callbacks=[Pruner(trial)]).get(monitor)
        if value is None:
            raise DataError(f"{monitor} is undefined in every epoch.")
        return value

    most = search.settings["trials"]
    if len(study.trials) < most:
        study.optimize(train, callbacks=[MaxTrialsCallback(most, None)], catch=(Exception,))


class Pruner(Callback):
    """Reports the monitored metric after every epoch, and ends a trial that is not promising."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def on_epoch_saved(self, loop: Loop) -> None:
        """Raises TrialPruned if the trial is to end; an undefined metric is not reported."""
        from optuna import TrialPruned

        value = loop.metrics.get(loop.monitor)
        if value is None:
            return
        self.trial.report(value, loop.epoch + 1)
        if self.trial.should_prune():
            raise TrialPruned(f"epoch {loop.epoch + 1}")


def _report(study: optuna.Study, search: Search, monitor: str) -> int:
    """Prints the best trial, and the command that trains it again."""
    from optuna.trial import FixedTrial, TrialState

    if not study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
        print("no trial came to its end; see their messages above", file=sys.stderr)
        return 1
    best = study.best_trial
    values = search.values(FixedTrial(best.params))  # refuses what the space does not have
    print(f"best: {monitor} {best.value:.6g}, {search.folder / TRIALS / str(best.number)}")
    print(f"train it: graphfold train {shlex.join([*search.words, *values])}")
    if search.settings["storage"] is None:
        print(f"look at the trials: optuna-dashboard {search.folder / STUDY}")
    return 0
