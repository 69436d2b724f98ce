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
import logging
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_config_dir, add_trust
from graphfold.errors import ConfigError, GraphfoldError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from graphfold.datasets.data_module import DataModule
    from graphfold.training.config.compose import Sources
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
    with loading():
        from graphfold.training.config.compose import Sources

    if args.cfg and args.multirun:
        raise ConfigError("--cfg shows the config of one run. Leave -m out.")
    sources = Sources(args.config_dir)
    if args.cfg:
        return _show(args, sources)
    job = TrainingJob(args.overrides, args.trust, args.debug, _flags(args))
    if args.multirun or "hydra.mode=MULTIRUN" in args.overrides:
        return _sweep(job, sources)
    return _train_once(job, sources)


def _flags(args: argparse.Namespace) -> list[str]:
    """The options of the command that say where config files are, and whom to trust."""
    words = [] if args.config_dir is None else ["--config-dir", str(args.config_dir)]
    words += [word for package in args.trust for word in ("--trust", package)]
    return [*words, "--debug"] if args.debug else words


@dataclass
class TrainingJob:
    """One training as Hydra calls it: in this process, or in one that a launcher starts.

    Args:
        overrides: as the user typed them.
        trusted: packages that a continued run may name.
        debug: whether the traceback of an error is printed.
        flags: the options of the command that its processes need, too.
        said: what runs before this one have printed, and it need not.
        process: the process of the command.
        code: the exit code of a single run.
        error: what went wrong in a single run. Were it raised, Hydra would print a line of its own.
    """

    overrides: list[str]
    trusted: list[str]
    debug: bool = False
    flags: Sequence[str] = ()
    said: set[str] = field(default_factory=set)
    process: int = field(default_factory=os.getpid)
    code: int = 0
    error: Exception | None = None

    def __call__(self, config: DictConfig) -> float | None:
        """Trains with a config that Hydra composed, into the folder that it made.

        Returns:
            For a sweeper that searches: the metric under val/ that chose the best epoch.
        """
        from hydra.core.hydra_config import HydraConfig

        hydra = cast("DictConfig", HydraConfig.get())
        folder = Path(hydra.runtime.output_dir)
        if folder.is_relative_to(Path.cwd()):
            folder = folder.relative_to(Path.cwd())
        is_alone = hydra.mode.name != "MULTIRUN"
        try:
            if not is_alone:
                return self._one_of_several(config, hydra, folder)
            self.code = self._train(config, hydra, folder)
        except Exception as error:
            if not is_alone:
                raise
            self.error = error
        finally:
            with suppress(OSError):
                folder.rmdir()  # if it is empty
        return None

    def _train(self, config: DictConfig, hydra: DictConfig, folder: Path) -> int:
        from graphfold.training.config.compose import finish, go_on_or_begin
        from graphfold.training.process.launch import is_first, is_launched, start_processes

        composed = finish(config, hydra, self.overrides, folder)
        words = self._words(hydra, folder, composed.config.resume)
        composed = go_on_or_begin(composed)
        stored = _stored(composed.config)
        devices = (stored or composed.config).trainer.devices
        starts_others = devices > 1 and not is_launched()
        is_alone = hydra.mode.name != "MULTIRUN"
        if stored is None and is_alone and is_first() and not starts_others:
            print(_choices(hydra), flush=True)  # before torch and the data, which take seconds
        trusted = [*self.trusted, *composed.packages]
        data = check(composed.config, stored, trusted)
        if starts_others:
            return start_processes(devices, words)
        with loading():
            from graphfold.recipe import train_command

        return train_command(composed, trusted, self.said, data)

    def _words(self, hydra: DictConfig, folder: Path, resume: object) -> list[str]:
        """The command line of this training alone, in the folder that was chosen for it."""
        from graphfold.training.config.compose import AUTO_RESUME
        from graphfold.training.config.overrides import in_hydras_grammar

        is_alone = hydra.mode.name != "MULTIRUN"
        words = ["train", *self.flags, *(self.overrides if is_alone else hydra.overrides.task)]
        if resume in (None, AUTO_RESUME):  # else it is in its own folder
            words.append(f"hydra.run.dir={in_hydras_grammar(str(folder))}")
        return words

    def _one_of_several(self, config: DictConfig, hydra: DictConfig, folder: Path) -> float | None:
        from graphfold.training.process.launch import is_first
        from graphfold.training.process.quiet import readable_warnings
        from graphfold.training.run.sweep import record_run

        is_here = self.process == os.getpid()
        with nullcontext() if is_here else readable_warnings(self.debug):
            try:
                if self._train(config, hydra, folder):
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


def _train_once(job: TrainingJob, sources: Sources) -> int:
    from graphfold.training.config.compose import AUTO_RESUME, changed_keys, explained
    from graphfold.training.config.overrides import in_hydras_grammar, parse_overrides
    from graphfold.training.run.run_folder import RunFolder

    words = list(job.overrides)
    with explained(job.overrides, sources):
        for override in parse_overrides(job.overrides):
            value = override.value()
            if value == AUTO_RESUME or override.key_or_group != "resume":
                continue
            if isinstance(value, str):
                changed_keys(job.overrides)
                RunFolder(Path(value)).read_config()  # Hydra would make the folder
                words.append(f"hydra.run.dir={in_hydras_grammar(value)}")
        _start(job, sources, words)
        if job.error is not None:
            raise job.error
    return job.code


def _sweep(job: TrainingJob, sources: Sources) -> int:
    """Runs every combination in a folder of its own, 0, 1, 2, ... of the sweep's folder.

    Hydra composes all configs before the first run. A run that fails does not stop the others. At
    the end there is a table of all runs, with means and deviations.
    """
    with loading():
        from graphfold.training.config.compose import readable, sweep_folder
        from graphfold.training.process.quiet import printing_once, warnings_once
        from graphfold.training.run.sweep import begin_sweep, report_sweep

    folder, words = sweep_folder(job.overrides, sources)
    begin_sweep(folder)
    error = None
    with warnings_once(), printing_once(), readable():
        try:
            _start(job, sources, words, ["--multirun"])
        except Exception as fault:
            error = fault
        failed = report_sweep(folder)
        if error is not None and not failed:  # a run that failed has told it
            raise error
    return 1 if failed else 0


def _show(args: argparse.Namespace, sources: Sources) -> int:
    """Prints the config."""
    from graphfold.training.config.compose import show_config

    print(show_config(args.overrides, sources, args.cfg, args.resolve), end="")
    return 0


def _start(
    job: Callable[[DictConfig], Any],
    sources: Sources,
    overrides: Sequence[str],
    flags: Sequence[str] = (),
) -> None:
    """Runs a job under Hydra.

    Args:
        job: what Hydra calls with the config.
        sources: where config files are.
        overrides: of the config and of Hydra.
        flags: other arguments of Hydra's command line.
    """
    import hydra

    from graphfold.training.config.compose import with_default_experiment

    words = [*flags, *with_default_experiment(overrides)]
    folder, *further = map(str, sources.folders())
    words += [word for path in further for word in ("--config-dir", path)]
    main = hydra.main(folder, sources.primary, version_base="1.3")
    with _command_line(words):
        main(job)()


@contextmanager
def _command_line(words: Sequence[str]) -> Iterator[None]:
    """Within, these are the arguments of the program, and Hydra raises what goes wrong.

    Hydra sets up the root logger, which is given back as it was.
    """
    full, argv = os.environ.get("HYDRA_FULL_ERROR"), sys.argv
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = [argv[0], *words]
    try:
        yield
    finally:
        sys.argv = argv
        root.setLevel(level)
        root.handlers[:] = handlers
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full


def _stored(config: TrainingConfig) -> TrainingConfig | None:
    """The config of the run that is continued; None for a new one."""
    from graphfold.training.run.run_folder import RunFolder

    return None if config.resume is None else RunFolder(Path(config.resume)).read_config()


def check(
    config: TrainingConfig, stored: TrainingConfig | None, trusted: Collection[str]
) -> DataModule | None:
    """Finds what is wrong before all that training takes is loaded.

    Returns:
        The data of a new run, of which nothing is read yet; None for one that is continued.
    """
    from graphfold.training.run.run_folder import find_checkpoint

    if config.init_from is not None:
        find_checkpoint(Path(config.init_from))
    with loading():
        from graphfold.training.config.check_parts import check_parts
        from graphfold.training.config.trust import TRAINED, refuse_untrusted

        if stored is None:
            return check_parts(config)  # torch's compiler comes with the first optimizer
    refuse_untrusted(stored.mapping, trusted, TRAINED)
    return None
