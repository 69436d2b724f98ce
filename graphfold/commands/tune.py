"""Search for good settings with Optuna: each trial is a training, judged by a validation metric.

overrides:
  model.hidden_size=100,300    values to try; 'optimizer.lr=tag(log,interval(1e-4,1e-2))' is a
                               range. Without any, what tune.space of the config says is searched
  tune=NAME tune.trials=30     a file of the config group tune, and its keys
  experiment=NAME data.path=F  any other key, as of graphfold train
  hydra.run.dir=FOLDER         the folder of the search (default: runs/NAME/tune_TIME); started
                               again with it, the search goes on
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_config_dir

HELP = "search for good settings"
USAGE = "graphfold tune [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold tune`."""
    add_config_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Trains the trials; prints the best one."""
    with loading():
        from graphfold.search import tune_command

    return tune_command(args.overrides, args.config_dir)
