"""Checks and measures graphfold on a CUDA device, in one call of a few minutes.

    python scripts/bench_gpu.py --json gpu.json data.root=...

The checks are the tests marked `gpu`: the engine on the device against the reference on the CPU.
Then the benchmarks treefc, sst, sequence and molecules run with `--device cuda`; each compares its
variants on the device, in double precision, before it measures them.

Without a CUDA device it says so and exits with 2; with 1 if a check failed or a corpus is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from graphfold.bench.measure import Settings
from graphfold.bench.results import print_rows
from graphfold.bench.run import ON_GPU, WITHOUT_CONFIG, measure_rows, use_machine, write_rows
from graphfold.errors import GraphfoldError
from graphfold.files import check_output

ROOT = Path(__file__).parents[1]


def main(words: Sequence[str] | None = None) -> int:
    """Runs the script; returns its exit code."""
    about = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows here")
    parser.add_argument("overrides", nargs="*", help="of the experiments' config")
    options = parser.parse_args(words)
    if not torch.cuda.is_available():
        print(
            "bench_gpu: this machine has no CUDA device. Run it on one that has.", file=sys.stderr
        )
        return 2
    check_output(options.json)
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests"]
    failed = subprocess.run(tests, cwd=ROOT, check=False).returncode != 0
    facts, rows = use_machine(1, "cuda"), []
    for name in ON_GPU:
        overrides = [] if name in WITHOUT_CONFIG else options.overrides
        try:
            found = measure_rows(name, Settings(device="cuda", overrides=overrides))
        except GraphfoldError as error:
            print(f"{name}: not measured. {error}", file=sys.stderr)
            failed = True
            continue
        print_rows(name, found, facts)
        rows += found
    if options.json is not None:
        write_rows(options.json, rows, facts)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
