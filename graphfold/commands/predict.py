"""Apply a trained model to a file, record by record, in constant memory.

Molecules give CSV: the input's columns, TARGET_pred (and TARGET_prob_CLASS), then reason.
Trees give JSON lines, or with --format the trees themselves. With --explain tables and lines also
have the contribution of each atom or word. A record that cannot be read gets a reason and no
prediction.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_run_arguments, local_path, settings_of
from graphfold.files import check_output

HELP = "apply a trained model to a file"
USAGE = "graphfold predict RUN INPUT [INPUT ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold predict`."""
    add_run_arguments(parser)
    parser.add_argument(
        "input",
        metavar="INPUT",
        type=local_path,
        nargs="+",
        help="files like those trained on, patterns such as 'new/*.csv', folders; - is standard "
        "input",
    )
    parser.add_argument(
        "--output",
        type=local_path,
        metavar="FILE",
        help="where to write (default: standard output); of several inputs a folder, which gets a "
        "file for each, but for those that are there",
    )
    parser.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="take every N-th input, from the I-th on: the share of job I of N jobs",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="add the contribution of each atom or word (integrated gradients)",
    )
    parser.add_argument(
        "--embeddings",
        action="store_true",
        help="write the vector that the head reads of each record, in place of predictions: a "
        "table with embedding_0, embedding_1, ..., or an array",
    )
    parser.add_argument(
        "--format",
        choices=["csv", "jsonl", "parquet", "npy", "brackets", "conllu"],
        help="trees come back as they were with predicted labels or columns (brackets, conllu); "
        "tables as csv or parquet, embeddings also as npy (default: the ending of --output)",
    )


def _shard(text: str) -> tuple[int, int]:
    """The number of a job, counted from 1, and the number of jobs."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no share. Write 3/64 for the third of 64 jobs, which count from 1"
        )
    return int(number), int(count)


def run(args: argparse.Namespace) -> int:
    """Writes one prediction per record; exit code 0 though some records were bad."""
    with loading():
        from graphfold.inference.predict_files import Task, command_predictor, predict_files

    if args.output is None or not args.output.is_dir():
        check_output(args.output)  # before the model is loaded
    task = Task(args.explain, args.embeddings, args.format)
    with command_predictor(args.run_path, settings_of(args), args.trust) as predictor:
        predict_files(predictor, args.input, args.output, task, args.shard)
    return 0
