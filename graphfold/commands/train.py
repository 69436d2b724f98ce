"""Train a model, score its best checkpoint on the test part, write a run folder.

overrides:
  experiment=NAME          one of `graphfold list`
  data.path=FILE seed=2    any key that --cfg job shows
  hydra.run.dir=FOLDER     the run folder (default: runs/NAME/TIME)
  resume=RUN               continue an interrupted run in its own folder; with
                           trainer.max_epochs=N a finished one, too
  resume=auto              continue the run in hydra.run.dir, or begin it
  init_from=RUN            start from the weights of a run or checkpoint, where they fit

It is a program of Hydra, https://hydra.cc: with -m, hydra/launcher=joblib or submitit_local runs
several trainings at a time, hydra/sweeper=NAME searches.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_config_dir, add_trust
from graphfold.errors import ConfigError, GraphfoldError
from graphfold.training.process.launch import is_first, is_launched, start_processes
from graphfold.training.process.quiet import printing_once, readable_warnings, warnings_once

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from graphfold.datasets.data_module import DataModule
    from graphfold.training.config.compose import Sources
    from graphfold.training.config.planned_run import PlannedRun
    from graphfold.training.config.training_config import TrainingConfig

HELP = "train a model into a run folder"
USAGE = "graphfold train [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold train`."""
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="one run for each combination of a,b,c"
    )
    parser.add_argument(
        *("--cfg", "-c"), choices=["job", "hydra", "all"], help="show the config and stop"
    )
    parser.add_argument("--resolve", action="store_true", help="with --cfg: fill in ${...}")
    add_config_dir(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Trains once, or once per combination; exit code 1 if a run of a sweep fails."""
    if args.resolve and not args.cfg:
        raise ConfigError("--resolve fills in what --cfg shows. Add --cfg job.")
    if args.cfg and args.multirun:
        raise ConfigError("--cfg shows the config of one run. Leave -m out.")
    with loading():
        from graphfold.training.config.compose import Sources, show_config

    sources = Sources(args.config_dir)
    if args.cfg:
        print(show_config(args.overrides, sources, args.cfg, args.resolve), end="")
        return 0
    job = TrainingJob(args.overrides, args.trust, args.debug, _flags(args))
    with printing_once():
        if args.multirun or "hydra.mode=MULTIRUN" in args.overrides:
            return _sweep(job, sources)
        return _train_once(job, sources)


def _flags(args: argparse.Namespace) -> list[str]:
    """The options of the command that its processes need, too."""
    words = [] if args.config_dir is None else ["--config-dir", str(args.config_dir)]
    words += [word for package in args.trust for word in ("--trust", package)]
    return [*words, "--debug"] if args.debug else words


def _train_once(job: TrainingJob, sources: Sources) -> int:
    """Runs a job under Hydra, or continues a run with its stored config."""
    from graphfold.training.config.compose import start_hydra
    from graphfold.training.config.overrides import parse_overrides
    from graphfold.training.config.planned_run import continued_run

    resumed = continued_run(parse_overrides(job.overrides))
    if resumed is not None:
        return job.train(resumed, job.overrides)

    def start(hydra: Any, words: list[str]) -> int | Exception:
        outcome: int | Exception = hydra.run(sources.primary, job, words).return_value
        return outcome

    outcome = start_hydra(start, job.overrides, sources)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _sweep(job: TrainingJob, sources: Sources) -> int:
    """Runs every combination in a folder of its own, 0, 1, 2, ... of the sweep's folder.

    Hydra composes all configs before the first run. A run that fails does not stop the others. At
    the end there is a table of all runs, with means and deviations.
    """
    with loading():
        from graphfold.training.config.compose import hydra_app, readable, sweep_words
        from graphfold.training.run.sweep import begin_sweep, report_sweep

    folder, words = sweep_words(job.overrides, sources)
    begin_sweep(folder)
    error = None
    try:
        with warnings_once(), readable(), hydra_app(sources) as hydra:
            hydra.multirun(sources.primary, job, words)
    except Exception as fault:
        error = fault
    failed = report_sweep(folder)
    if error is not None and not failed:  # a run that failed has printed its error
        raise error
    return 1 if failed else 0


@dataclass
class TrainingJob:
    """One training as Hydra calls it: in this process, or in one that a launcher starts.

    Args:
        overrides: as the user typed them.
        trusted: packages that a continued run may name.
        debug: whether the traceback of an error is printed.
        flags: the options of the command that its processes need, too.
        printed: lines that earlier runs of a sweep printed; they are not repeated. Extended in
            place.
        process: the process of the command.
    """

    overrides: list[str]
    trusted: list[str]
    debug: bool = False
    flags: Sequence[str] = ()
    printed: set[str] = field(default_factory=set)
    process: int = field(default_factory=os.getpid)

    def __call__(self, config: DictConfig) -> int | float | Exception | None:
        """Trains with a config that Hydra composed, into the folder that it made.

        Returns:
            Of a single run the exit code, or the error: Hydra would print a line of its own if it
            were raised. For a sweeper that searches, the metric that chose the best epoch.
        """
        from hydra.core.hydra_config import HydraConfig

        hydra = cast("DictConfig", HydraConfig.get())
        folder = Path(hydra.runtime.output_dir)
        if folder.is_relative_to(Path.cwd()):
            folder = folder.relative_to(Path.cwd())
        try:
            if hydra.mode.name == "MULTIRUN":
                return self._one_of_several(config, hydra, folder)
            return self._new_run(config, hydra, folder)
        except Exception as error:
            if hydra.mode.name == "MULTIRUN":
                raise
            return error
        finally:
            with suppress(OSError):
                folder.rmdir()  # if it is empty

    def _new_run(self, config: DictConfig, hydra: DictConfig, folder: Path) -> int:
        from graphfold.training.config.compose import plan
        from graphfold.training.config.overrides import in_hydras_grammar
        from graphfold.training.config.planned_run import begin_or_continue

        run = begin_or_continue(plan(config, hydra, folder))
        is_alone = hydra.mode.name != "MULTIRUN"
        words = self.overrides if is_alone else hydra.overrides.task
        title = _choices(hydra) if is_alone and run.config.resume is None else None
        return self.train(run, [*words, f"hydra.run.dir={in_hydras_grammar(str(folder))}"], title)

    def train(self, run: PlannedRun, overrides: Sequence[str], title: str | None = None) -> int:
        """Trains, in this process or in several; returns the exit code.

        Args:
            run: the config, and the folder.
            overrides: of this run alone, for processes that it is trained in.
            title: a line to print before torch and the data are loaded, which takes seconds.
        """
        devices = run.config.trainer.devices
        starts_others = devices > 1 and not is_launched()
        if title is not None and not starts_others:
            print(title, flush=True)
        data = check(run.config)
        if starts_others:
            return start_processes(devices, ["train", *self.flags, *overrides])
        with loading():
            from graphfold.recipe import train_command

        return train_command(run, [*self.trusted, *run.packages], self.printed, data)

    def _one_of_several(self, config: DictConfig, hydra: DictConfig, folder: Path) -> float | None:
        from graphfold.training.run.sweep import record_run

        is_here = self.process == os.getpid()
        with nullcontext() if is_here else readable_warnings(self.debug):
            try:
                if self._new_run(config, hydra, folder):
                    sys.exit(1)  # interrupted, or its processes failed: so are the others
            except Exception as error:
                is_message = isinstance(error, GraphfoldError) and not self.debug
                text = f"error: {error}\n" if is_message else traceback.format_exc()
                print(text, end="", file=sys.stderr, flush=True)
                if is_first():
                    record_run(hydra, None)
                raise
            return record_run(hydra, folder) if is_first() else None


def _choices(hydra: DictConfig) -> str:
    """The parts of a run, in the words that choose them."""
    chosen = hydra.runtime.choices
    return " ".join(
        f"{group}={chosen[group]}" for group in ("experiment", "data", "model") if chosen.get(group)
    )


def check(config: TrainingConfig) -> DataModule | None:
    """Checks a config before torch's compiler and the parts of a training are loaded.

    Returns:
        The data of a new run, which are not read yet; None for a run to continue.
    """
    from graphfold.training.run.run_folder import find_checkpoint

    if config.resume is not None:
        return None  # `resume_run` checks it
    if config.init_from is not None:
        find_checkpoint(Path(config.init_from))
    with loading():
        from graphfold.training.config.check_parts import check_parts

        return check_parts(config)  # torch's compiler comes with the first optimizer
