"""Train a model, score its best checkpoint on the test part, write a run folder.

overrides:
  experiment=NAME          one of `graphfold list`
  data.path=FILE seed=2    any key that --cfg job shows
  hydra.run.dir=FOLDER     the run folder (default: runs/NAME/TIME)
  resume=RUN               continue an interrupted run in its own folder; with
                           trainer.max_epochs=N a finished one, too
  init_from=RUN            start from the weights of a run or checkpoint, where they fit
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfold.commands.loading import loading
from graphfold.commands.options import add_config_dir, add_trust, refuse_options_of_hydra
from graphfold.errors import ConfigError

if TYPE_CHECKING:
    from graphfold.datasets.data_module import DataModule

HELP = "train a model into a run folder"
USAGE = "graphfold train [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold train`."""
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="one run for each combination of a,b,c"
    )
    parser.add_argument(
        "--all-folds",
        action="store_true",
        help="as -m, one run for each fold of data.split=kfold or repeated_kfold",
    )
    parser.add_argument("--cfg", choices=["job", "hydra", "all"], help="show the config and stop")
    parser.add_argument("--resolve", action="store_true", help="with --cfg job: fill in ${...}")
    add_config_dir(parser)
    refuse_options_of_hydra(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Trains once, or once per combination; exit code 1 if a run of a sweep fails."""
    with loading():
        from graphfold.training.config.compose import compose, show_config

    if args.resolve and args.cfg != "job":
        raise ConfigError("--resolve fills in what --cfg job shows. Add --cfg job.")
    if args.cfg:
        jobs = [args.overrides]
        if args.multirun or args.all_folds:
            with loading():
                from graphfold.studies.sweep import sweep_jobs

            jobs = sweep_jobs(args.overrides, args.config_dir, args.all_folds)
        shown = [show_config(job, args.config_dir, args.cfg, args.resolve) for job in jobs]
        if len(jobs) > 1:
            shown = [f"# {' '.join(job)}\n{text}" for job, text in zip(jobs, shown, strict=True)]
        print("\n---\n".join(shown))
        return 0
    if args.multirun or args.all_folds:
        with loading():
            from graphfold.studies.sweep import sweep

        return sweep(args.overrides, args.config_dir, args.all_folds)
    composed = compose(args.overrides, args.config_dir)
    data = check(composed.config, args.trust)
    with loading():
        from graphfold.recipe import train_command

    return train_command(composed, args.trust, data=data)


def check(config: Mapping[str, Any], trusted: Collection[str]) -> DataModule | None:
    """Finds what is wrong before all that training takes is loaded.

    Returns:
        The data of a new run, of which nothing is read yet; None for one that is continued.
    """
    from graphfold.training.run.run_folder import RunFolder, find_checkpoint

    if config["init_from"] is not None:
        find_checkpoint(Path(config["init_from"]))
    stored = None
    if config["resume"] is not None:
        stored = RunFolder(Path(config["resume"])).read_config()
    with loading():
        from graphfold.training.config.check_parts import check_parts
        from graphfold.training.config.trust import TRAINED, refuse_untrusted

    if stored is None:
        return check_parts(config)
    refuse_untrusted(stored, trusted, TRAINED)
    return None
