"""Score a trained model; no config is needed. RUN is a run folder or a checkpoint file."""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_run_arguments, local_path, settings_of

HELP = "score a trained model"
USAGE = "graphfold evaluate RUN [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold evaluate`."""
    add_run_arguments(parser)
    parser.add_argument(
        "--data",
        type=local_path,
        metavar="PATH",
        help="score every record of this file, folder or pattern, under test/; - is standard input",
    )
    parser.add_argument("--split", choices=["train", "val", "test"], help="default: val and test")
    parser.add_argument("--on-error", choices=["raise", "skip"], help="what to do with bad records")
    parser.add_argument(
        "--per-class",
        action="store_true",
        help="also precision, recall and F1 of every class, and the confusion matrix",
    )
    parser.add_argument(
        "--json",
        type=local_path,
        metavar="FILE",
        help="write the metrics here",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the metrics; writes them with --json."""
    with loading():
        from graphfold.inference.evaluation import print_evaluation

    settings = settings_of(args)
    if args.on_error is not None:
        settings.append(f"on_error={args.on_error}")
    print_evaluation(
        args.run_path, args.data, args.split, settings, args.trust, args.per_class, args.json
    )
    return 0
