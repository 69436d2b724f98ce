"""Benchmarks: commands that print ratios measured in one run."""

from graphfold.bench.run import run_bench

__all__ = ["run_bench"]
