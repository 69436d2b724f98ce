"""Draw the records of a file with the predictions of a trained model in colour.

Constituency trees and list operations are drawn as trees, dependency trees as arcs over their
words, molecules with the contributions of their atoms: blue raises the prediction, orange lowers
it. Each record becomes an SVG file; index.html shows them all, and the reason why a record could
not be read.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_run_arguments, local_path, settings_of

HELP = "draw a file's records with predictions in colour"
USAGE = "graphfold draw RUN INPUT [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold draw`."""
    add_run_arguments(parser)
    parser.add_argument(
        "input",
        metavar="INPUT",
        type=local_path,
        help="a file like those trained on; - is standard input",
    )
    parser.add_argument(
        "--output",
        type=local_path,
        metavar="FOLDER",
        help="where to write (default: INPUT_drawings, in the current folder)",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the target whose contributions colour molecules (default: the first)",
    )


def run(args: argparse.Namespace) -> int:
    """Draws every record; exit code 0 though some records were bad."""
    with loading():
        from graphfold.inference.picture_pages import draw_input
        from graphfold.inference.predict_files import command_predictor

    with command_predictor(args.run_path, settings_of(args), args.trust) as predictor:
        draw_input(predictor, args.input, args.output, args.target)
    return 0
