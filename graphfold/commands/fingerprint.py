"""Write the embedding of every record of a file: what the head of a trained model reads.

The suffix of --output chooses the form. A table (.csv, .parquet) has the input's columns, of trees
the line, then embedding_0, embedding_1, ..., then reason. An array (.npy, .npz) has a row for every
record, NaN where one could not be read. A model that predicts words or nodes gives the mean over
the output nodes: of a tree, its root. Several inputs have a file each in the folder --output.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.options import add_input, add_run_arguments, job_of, place

HELP = "write the embeddings of a file's records"
USAGE = "graphfold fingerprint RUN INPUT [INPUT ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold fingerprint`."""
    add_run_arguments(parser)
    add_input(parser, several=True)
    parser.add_argument(
        "--output",
        type=place,
        metavar="FILE",
        help="a file or an address that ends in .csv, .parquet, .npy or .npz (default: CSV to "
        "standard output); of several inputs a folder, which gets a file for each",
    )
    parser.add_argument(
        "--format",
        choices=["csv", "parquet", "npy", "npz"],
        help="the form of the files in a folder (default: csv)",
    )


def run(args: argparse.Namespace) -> int:
    """Writes one embedding per record; exit code 0 though some records were bad."""
    with loading():
        from graphfold.inference.embed import fingerprint_files

    fingerprint_files(job_of(args), args.output, args.format)
    return 0
