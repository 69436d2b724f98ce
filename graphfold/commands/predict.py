"""Apply a trained model to a file, record by record, in constant memory.

Molecules give CSV: the input's columns, TARGET_pred (and TARGET_prob_CLASS), then reason.
Trees give JSON lines, or with --format the trees themselves. With --explain tables and lines also
say what atoms and bonds, or words, contribute. A record that cannot be read gets a reason and no
prediction.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.options import (
    add_input,
    add_run_arguments,
    job_of,
    place,
)

HELP = "apply a trained model to a file"
USAGE = "graphfold predict RUN INPUT [INPUT ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold predict`."""
    add_run_arguments(parser)
    add_input(parser, several=True)
    parser.add_argument(
        "--output",
        type=place,
        metavar="FILE",
        help="where to write (default: standard output), a file or an address such as "
        "s3://bucket/new.csv; of several inputs a folder, which gets a file for each",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="add what atoms and bonds, or words, contribute (integrated gradients)",
    )
    parser.add_argument(
        "--format",
        choices=["brackets", "conllu", "parquet"],
        help="give trees back as they came, with predicted labels or columns; or write tables as "
        "Parquet, as an --output that ends in .parquet is, too",
    )


def run(args: argparse.Namespace) -> int:
    """Writes one prediction per record; exit code 0 though some records were bad."""
    with loading():
        from graphfold.inference.predict import predict_files

    predict_files(job_of(args), args.output, args.explain, args.format)
    return 0
