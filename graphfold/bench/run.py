"""`graphfold bench`: measures, prints a table, writes JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from graphfold.bench.measure import Row
from graphfold.errors import ConfigError, did_you_mean

#: Name -> the module that measures it, with a function `rows`.
BENCHMARKS = {"treefc": "graphfold.bench.treefc"}


def run_bench(
    name: str,
    overrides: Sequence[str] = (),
    threads: int | None = None,
    batch_sizes: list[int] | None = None,
    hidden_sizes: list[int] | None = None,
    json_path: Path | None = None,
) -> int:
    """Runs one benchmark with its baselines; returns the exit code.

    Raises:
        ConfigError: if there is no such benchmark, or overrides for one that takes none.
    """
    if name not in BENCHMARKS:
        hint = did_you_mean(name, BENCHMARKS)
        raise ConfigError(f"there is no benchmark '{name}'.{hint} Use {', '.join(BENCHMARKS)}.")
    if overrides:
        raise ConfigError(f"benchmark '{name}' takes no overrides, not '{overrides[0]}'.")
    if threads is not None:
        torch.set_num_threads(threads)
    module = importlib.import_module(BENCHMARKS[name])
    rows = list(module.rows(batch_sizes, hidden_sizes, torch.get_num_threads()))
    Console().print(_table(name, rows))
    if json_path is not None:
        json_path.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")
    return 0


def _table(name: str, rows: Sequence[Row]) -> Table:
    table = Table(title=f"{name}, {rows[0].threads} threads, torch {torch.__version__}")
    for heading in ("shape", "hidden", "batch", "phase", "variant"):
        table.add_column(heading)
    table.add_column("examples/s", justify="right")
    table.add_column("x graphfold", justify="right")
    for row in rows:
        figures = f"{row.examples_per_second:,.0f}", f"{row.ratio:.2f}"
        table.add_row(
            row.shape, str(row.hidden_size), str(row.batch_size), row.phase, row.variant, *figures
        )
    return table
