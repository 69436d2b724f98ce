"""Checks and measures graphfold on a CUDA device, in one call of a few minutes.

    python scripts/bench_gpu.py --json gpu.json data.root=...

The checks compare the fast engine there with the reference on the CPU: values and gradients in
float64, float32 and under autocast, passes up, down and in rounds, sharing, dropout, equal bits
when repeated. Measured are steps and epochs of the Tree-LSTM on SST, Tree-FC at Fold's setting and
D-MPNN on Lipophilicity, with the kernels that a step launches, in float32 and in TensorFloat-32.

Without a CUDA device it says so and exits with 2; with 1 if a check failed or a corpus is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from graphfold.bench.device_run import run_device


def main(words: Sequence[str] | None = None) -> int:
    """Runs the script; returns its exit code."""
    about = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write checks and rows here")
    parser.add_argument("overrides", nargs="*", help="of the experiments' config")
    options = parser.parse_args(words)
    if not torch.cuda.is_available():
        print(
            "bench_gpu: this machine has no CUDA device. Run it on one that has.", file=sys.stderr
        )
        return 2
    return run_device("cuda", options.overrides, options.json)


if __name__ == "__main__":
    sys.exit(main())
