"""Say which models differ: over repeated runs with repeated-measures ANOVA and Tukey's HSD.

RUN is a run folder, or the folder of a sweep with all its runs. Runs whose configs differ in seed
and fold alone are repetitions of one model. Runs of different models are paired by their splits:
graphfold train --all-folds data.split=repeated_kfold makes them. Single runs are compared over
their test records, by a paired bootstrap.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.options import add_trust, local_path
from graphfold.errors import ConfigError

HELP = "say which models differ, over repeated runs"
USAGE = "graphfold compare RUN RUN ... [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold compare`."""
    parser.add_argument(
        "runs", metavar="RUN", type=local_path, nargs="+", help="run or sweep folder"
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="such as rmse or val/mae; default: what chose the epochs"
    )
    parser.add_argument(
        "--independent",
        action="store_true",
        help="one-way ANOVA, as if runs on the same split had nothing in common",
    )
    parser.add_argument("--json", type=local_path, metavar="FILE", help="write the facts here")
    parser.add_argument(
        "--plot",
        type=local_path,
        metavar="FILE",
        help="an .svg, .png or .pdf file; default: beside that of --json, as .svg",
    )
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the table and the sentence; writes facts and plot where asked to."""
    for path in args.runs:
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder. Name run folders or folders of sweeps.")
    with loading():
        from graphfold.studies.compare import print_comparison

    print_comparison(args.runs, args.metric, args.independent, args.json, args.plot, args.trust)
    return 0
