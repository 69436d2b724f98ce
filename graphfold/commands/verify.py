"""Compare the fast engine with one node at a time in float64: outputs and gradients."""

from __future__ import annotations

import argparse
from pathlib import Path

from graphfold.commands.loading import loading
from graphfold.commands.options import add_config_dir, add_trust, local_path, positive

HELP = "compare the fast engine with the reference"
USAGE = "graphfold verify [RUN] [experiment=NAME] [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold verify`."""
    parser.add_argument("--policy", metavar="P", help="scheduling policy (default: all)")
    parser.add_argument("--kernel", metavar="K", help="segment kernel (default: the usual one)")
    parser.add_argument("--examples", type=positive, metavar="N", help="how many graphs to compare")
    add_config_dir(parser)
    add_trust(parser)
    parser.add_argument(
        "--json", type=local_path, metavar="FILE", help="write the differences here"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 1 on a difference."""
    with loading():
        from graphfold.inference.verify import run_verify

    runs = [word for word in args.overrides if "=" not in word]
    if len(runs) > 1:
        args.parser.error(f"'{runs[1]}' is one RUN too many")
    return int(
        run_verify(
            run=Path(runs[0]) if runs else None,
            overrides=[word for word in args.overrides if "=" in word],
            policy=args.policy,
            kernel=args.kernel,
            examples=args.examples,
            json_path=args.json,
            config_dir=args.config_dir,
            trusted=args.trust,
        )
    )
