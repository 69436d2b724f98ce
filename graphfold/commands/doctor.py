"""Show what a run depends on beside its config, or empty the cache.

Versions of the libraries, how torch was built and what it uses of the processor, the C compiler and
the native library, the cache with its size, and the folder of the corpora.
"""

from __future__ import annotations

import argparse

HELP = "show versions, processor, native library, cache and data folder"
USAGE = "graphfold doctor [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold doctor`."""
    parser.add_argument(
        "--clear-cache",
        action="store_true",
        help="remove packed data, corpora made on the spot and native libraries from the cache",
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line per fact, or what was freed."""
    from graphfold.training.process.doctor import clear_cache, facts

    if args.clear_cache:
        print(clear_cache())
        return 0
    found = facts()
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {value}")
    return 0
