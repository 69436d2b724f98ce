"""Measure speed against baselines that run in the same process.

NAME is a benchmark, and each answers a question:
  treefc      how close is the engine to code written by hand for one cell?
  sst         how fast does a Tree-LSTM train, and what does sharing equal nodes gain?
  trees       how fast does each tree model train?
  sequence    what does a chain cost, compared with torch's own LSTM?
  molecules   how fast are graph networks, beside PyTorch Geometric and chemprop?
  blocks      what does it cost to write a model as blocks?
  schedule    which policy needs the fewest calls of cells, and what does planning cost?
  memory      how much memory does a training step need?
  train       how long is an epoch, and what does graphfold train add to the steps?
  predict     how long does one prediction take?
  predict_table  how fast are the molecules of a table predicted, beside chemprop?
  reading     how fast is a table of molecules read, beside RDKit's parser alone?
or
  page        docs/benchmarks.md, on stdout, out of files written with --json:
              graphfold bench page FILE...
"""

from __future__ import annotations

import argparse

from graphfold.commands.instruction_set import NATIVE, VARIABLES, keep_to
from graphfold.commands.loading import loading
from graphfold.commands.options import add_config_dir, add_trust, local_path, positive

HELP = "measure speed against baselines"
USAGE = "graphfold bench NAME [options] [overrides]"
DEVICES = ("cpu", "cuda")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold bench`."""
    parser.add_argument("name", metavar="NAME", help="the benchmark")
    parser.add_argument(
        "--threads", type=positive, metavar="N", default=1, help="threads of torch (default: 1)"
    )
    parser.add_argument("--batch-size", type=_numbers, metavar="N,..", help="batch sizes")
    parser.add_argument("--hidden-size", type=_numbers, metavar="N,..", help="widths")
    parser.add_argument(
        "--shape", type=_words, metavar="NAME,..", help="only these models, or shapes of graphs"
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        choices=DEVICES,
        default=DEVICES[0],
        help="where models and batches are: cpu or cuda (default: cpu)",
    )
    parser.add_argument(
        "--isa",
        metavar="ISA",
        choices=[NATIVE, *VARIABLES],
        default=NATIVE,
        help="instruction set: native, avx2 or avx512 (default: native)",
    )
    parser.add_argument("--json", type=local_path, metavar="FILE", help="write the rows here")
    add_config_dir(parser)
    add_trust(parser)


def _numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def _words(text: str) -> list[str]:
    return text.split(",")


def run(args: argparse.Namespace) -> int:
    """Prints the table of speeds; writes it with --json."""
    keep_to(args.isa)
    with loading():
        from graphfold.bench.measure import Settings
        from graphfold.bench.run import run_bench

    settings = Settings(
        batch_sizes=args.batch_size or (),
        hidden_sizes=args.hidden_size or (),
        shapes=args.shape or (),
        threads=args.threads,
        device=args.device,
        overrides=args.overrides,
        config_dir=args.config_dir,
    )
    return int(run_bench(args.name, settings, args.json))
