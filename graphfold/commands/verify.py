"""Compare the fast engine with one example at a time in float64: outputs and gradients."""

from __future__ import annotations

import argparse
from pathlib import Path

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_config_dir, add_trust, local_path, positive

HELP = "compare the fast engine with the reference"
USAGE = "graphfold verify [RUN] [experiment=NAME] [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold verify`."""
    parser.add_argument(
        "--examples", type=positive, metavar="N", default=16, help="graphs to compare (default: 16)"
    )
    add_config_dir(parser)
    add_trust(parser)
    parser.add_argument(
        "--json", type=local_path, metavar="FILE", help="write the differences here"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 1 on a difference."""
    with loading():
        from graphfold.inference.compare_engines import run_verify

    runs = [word for word in args.overrides if "=" not in word]
    if len(runs) > 1:
        args.parser.error(f"'{runs[1]}' is one RUN too many")
    overrides = [word for word in args.overrides if "=" in word]
    path = Path(runs[0]) if runs else None
    return run_verify(path, overrides, args.examples, args.json, args.config_dir, args.trust)
