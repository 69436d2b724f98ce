"""Name the experiments, corpora, adapters and models."""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading

HELP = "name experiments, corpora, adapters and models"
USAGE = "graphfold list [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`graphfold list` has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Prints one block per kind, one line per name."""
    with loading():
        from graphfold.training.config.listing import describe_all

    print(describe_all())
    return 0
