"""Measure speed against baselines that run in the same process.

NAME is a benchmark:
  treefc      binary trees of 128 leaves, identical and random
  sst         Tree-LSTM on the Stanford Sentiment Treebank
  sequence    LSTM over sentences, against torch.nn.LSTM
  molecules   message passing, against other libraries where they are installed
  blocks      a Tree-LSTM of combinators, against the same of cells
  kernels     reductions over children, one kernel against the other
  schedule    planning batches, by policy: speed, and launches against the least there can be
  memory      bytes that a training step holds, per node
  train       graphfold train against a bare loop
  predict     one tree at a time, from its text to its prediction
or
  page        docs/benchmarks.md, on stdout, out of files written with --json:
              graphfold bench page FILE...
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphfold.commands.evaluate import positive
from graphfold.commands.instruction_set import NATIVE, VARIABLES, keep_to
from graphfold.commands.loading import loading

HELP = "measure speed against baselines"
USAGE = "graphfold bench NAME [options] [overrides]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold bench`."""
    parser.add_argument("name", metavar="NAME", help="the benchmark")
    parser.add_argument(
        "--threads", type=positive, metavar="N", default=1, help="threads of torch (default: 1)"
    )
    parser.add_argument("--batch-size", type=_numbers, metavar="N,..", help="batch sizes")
    parser.add_argument("--hidden-size", type=_numbers, metavar="N,..", help="widths")
    parser.add_argument(
        "--products",
        metavar="KERNELS",
        default="auto",
        help="product kernels: auto, default or onednn (default: auto)",
    )
    parser.add_argument(
        "--isa",
        metavar="ISA",
        choices=[NATIVE, *VARIABLES],
        default=NATIVE,
        help="instruction set: native, avx2 or avx512 (default: native)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")


def _numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> int:
    """Prints the table of speeds; writes it with --json."""
    keep_to(args.isa)
    with loading():
        from graphfold.bench import run_bench

    return int(
        run_bench(
            name=args.name,
            overrides=args.overrides,
            threads=args.threads,
            batch_sizes=args.batch_size,
            hidden_sizes=args.hidden_size,
            json_path=args.json,
            products=args.products,
        )
    )
