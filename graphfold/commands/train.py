"""Train a model, score its best checkpoint on the test part, write a run folder.

overrides:
  experiment=NAME          one of `graphfold list`
  data.path=FILE seed=2    any key that --cfg job shows
  hydra.run.dir=FOLDER     the run folder (default: runs/NAME/TIME)
  resume=RUN               continue an interrupted run in its own folder
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphfold.commands.loading import loading

HELP = "train a model into a run folder"
USAGE = "graphfold train [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold train`."""
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="one run for each combination of a,b,c"
    )
    parser.add_argument("--cfg", choices=["job", "hydra", "all"], help="show the config and stop")
    parser.add_argument("--resolve", action="store_true", help="with --cfg job: fill in ${...}")
    parser.add_argument(
        "--config-dir", type=Path, metavar="DIR", help="a further folder of config files"
    )


def run(args: argparse.Namespace) -> int:
    """Trains once, or once per combination; exit code 1 if a run of a sweep fails."""
    with loading():
        from graphfold.training.config.compose import compose, show_config

    if args.cfg:
        print(show_config(args.overrides, args.config_dir, args.cfg, args.resolve))
        return 0
    with loading():
        from graphfold.training.config.sweep import sweep
        from graphfold.training.loop.train import train_command

    if args.multirun:
        return sweep(args.overrides, args.config_dir)
    return train_command(compose(args.overrides, args.config_dir))
