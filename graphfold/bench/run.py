"""`graphfold bench`: measures, prints a table, writes JSON."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from graphfold.bench.machine import use_machine
from graphfold.bench.measure import Row
from graphfold.bench.page import render
from graphfold.bench.tables import print_rows
from graphfold.errors import ConfigError, did_you_mean
from graphfold.files import check_output, write_text

#: Name -> the module that measures it, with a function `rows`.
BENCHMARKS = {
    "treefc": "graphfold.bench.treefc",
    "sst": "graphfold.bench.sst",
    "sequence": "graphfold.bench.sequence",
    "molecules": "graphfold.bench.molecules",
    "blocks": "graphfold.bench.blocks",
    "kernels": "graphfold.bench.kernels",
    "schedule": "graphfold.bench.schedule",
    "memory": "graphfold.bench.memory",
    "train": "graphfold.bench.train",
    "predict": "graphfold.bench.predict",
}

#: What else the command does.
PAGE = "page"

#: Keys of the config that are options of the command, so that the rows say what was measured.
PROCESS_OPTIONS = {"threads": "--threads", "products": "--products"}
OPTIONS = {
    **PROCESS_OPTIONS,
    "data.batch_size": "--batch-size",
    "model.hidden_size": "--hidden-size",
}


def run_bench(
    name: str,
    overrides: Sequence[str] = (),
    threads: int = 1,
    batch_sizes: list[int] | None = None,
    hidden_sizes: list[int] | None = None,
    json_path: Path | None = None,
    products: str = "auto",
) -> int:
    """Runs one benchmark with its baselines; returns the exit code.

    Args:
        name: the benchmark, or "page".
        overrides: of the config of its experiment, for those that have one; for "page" the JSON
            files that it is made of.
        threads: of torch.
        batch_sizes: in place of the benchmark's own.
        hidden_sizes: in place of the benchmark's own.
        json_path: where the rows are written.
        products: the product kernels that all variants use.

    Raises:
        ConfigError: if there is no such benchmark, or overrides for one that takes none.
    """
    if name == PAGE:
        print(render([Path(word) for word in overrides], BENCHMARKS), end="")
        return 0
    _refuse_options(name, overrides)
    measure = _find(name)
    arguments: dict[str, Any] = {}
    if "overrides" in inspect.signature(measure).parameters:
        arguments["overrides"] = list(overrides)
    elif overrides:
        raise ConfigError(f"benchmark '{name}' takes no overrides, not '{overrides[0]}'.")
    check_output(json_path)
    facts = use_machine(threads, products)
    rows = _collect(measure(batch_sizes, hidden_sizes, threads, **arguments))
    print_rows(name, rows, facts)
    if json_path is not None:
        content = [{**row.to_dict(), **facts} for row in rows]
        write_text(json_path, json.dumps(content, indent=1) + "\n")
    return 0


def _refuse_options(name: str, overrides: Sequence[str]) -> None:
    """Raises ConfigError for an override that has an option instead."""
    for override in overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in OPTIONS:
            raise ConfigError(f"override '{override}': bench has {OPTIONS[key]} for it. Use that.")


def _collect(rows: Iterable[Row]) -> list[Row]:
    """The rows; on a terminal, each is told as it comes, for all of them may take minutes."""
    found = []
    for row in rows:
        found.append(row)
        if sys.stderr.isatty():
            setting = f"{row.shape} {row.hidden_size} x {row.batch_size}".strip()
            speed = f"{row.examples_per_second:,.0f} examples/s"
            print(row.benchmark, setting, row.phase, row.variant, speed, file=sys.stderr)
    return found


def _find(name: str) -> Callable[..., Iterable[Row]]:
    """The function `rows` of a benchmark."""
    if name not in BENCHMARKS:
        names = [*BENCHMARKS, PAGE]
        hint = did_you_mean(name, names)
        raise ConfigError(f"there is no benchmark '{name}'.{hint} Use {', '.join(names)}.")
    rows: Callable[..., Iterable[Row]] = importlib.import_module(BENCHMARKS[name]).rows
    return rows
