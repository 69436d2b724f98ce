"""Show what a run depends on beside its config, say what is wrong with it, or empty the cache.

Versions of the libraries, how torch was built, the GPU, what is used of the processor, cores that
are free, the C compiler, the native library and what built it, the cache with its size, and the
folder of the corpora. The exit code is 1 if something is wrong, after a line that says what to do.
"""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading

HELP = "show versions, processor, GPU, native library and cache, and what is wrong"
USAGE = "graphfold doctor [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold doctor`."""
    parser.add_argument(
        "--clear-cache",
        action="store_true",
        help="remove packed data, corpora made on the spot and native libraries from the cache",
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line per fact, then one per fault; or what was freed."""
    with loading():
        from graphfold.errors import count_of
        from graphfold.training.process.doctor import clear_cache, facts

    if args.clear_cache:
        print(clear_cache())
        return 0
    lines = list(facts())
    width = max(len(fact.name) for fact in lines)
    for fact in lines:
        print(f"{fact.name:{width}}  {fact.value}")
    faults = [fact for fact in lines if fact.fault]
    print(f"\n{count_of(len(faults), 'fault')}" if faults else "\nnothing is wrong")
    for fact in faults:
        print(f"- {fact.name}: {fact.fault.rstrip('.')}.")
    return 1 if faults else 0
