"""Measure speed against baselines that run in the same process."""

from __future__ import annotations

import argparse
from pathlib import Path

from graphfold.commands.evaluate import positive

HELP = "measure speed against baselines"
USAGE = "graphfold bench NAME [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold bench`."""
    parser.add_argument("name", metavar="NAME", help="the benchmark")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of torch")
    parser.add_argument("--batch-size", type=_numbers, metavar="N,..", help="batch sizes")
    parser.add_argument("--hidden-size", type=_numbers, metavar="N,..", help="widths")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")


def _numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> int:
    """Prints the table of speeds; writes it with --json."""
    from graphfold.bench import run_bench

    return int(
        run_bench(
            name=args.name,
            overrides=args.overrides,
            threads=args.threads,
            batch_sizes=args.batch_size,
            hidden_sizes=args.hidden_size,
            json_path=args.json,
        )
    )
