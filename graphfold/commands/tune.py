"""Search for good settings: trainings whose validation metric chooses the next ones.

overrides:
  model.hidden_size=100,300    values to try; 'optimizer.lr=tag(log,interval(1e-4,1e-2))' is a
                               range. Without any, what tune.space of the config says is searched
  tune=NAME tune.trials=30     a file of the config group tune, and its keys
  experiment=NAME data.path=F  any other key, as of graphfold train
  hydra.run.dir=FOLDER         the folder of the search (default: runs/NAME/tune_TIME)
  resume=FOLDER                continue a search; with tune.trials=N a finished one, too
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.options import add_config_dir, add_trust, refuse_options_of_hydra

HELP = "search for good settings"
USAGE = "graphfold tune [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold tune`."""
    add_config_dir(parser)
    refuse_options_of_hydra(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Prints a line for each trial, then the best and where its config is."""
    with loading():
        from graphfold.studies.tune import tune_command

    return tune_command(args.overrides, args.config_dir, args.trust)
