"""`graphfold bench page`: docs/benchmarks.md out of the JSON files of benchmarks.

graphfold bench page treefc.json sst.json molecules.json > docs/benchmarks.md
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

from graphfold.bench.page_table import tables
from graphfold.bench.treefc import NUM_LEAVES
from graphfold.errors import ConfigError

#: What tells a file of `graphfold bench` from another one.
_FACTS = {"cpu", "isa", "torch", "products"}

#: What the page begins with.
INTRODUCTION = """\
# Benchmarks

This page is made by `graphfold bench page FILE... > docs/benchmarks.md` out of what the benchmarks
wrote with `--json`. Run them with nothing else on the machine.

Figures are examples per second, from the median time of turns that the variants of a line take one
after another in one process, on the same weights and threads. Before they are timed, their results
are compared. All variants have the product kernels of torch that the line above a table names, but
graphfold's cells where they are compiled, which have native code of their own.

Each section says of every variant what it shares: either it computes equal nodes of a batch once,
or it computes every node. Ratios of variants that differ in this contain what sharing gains.

`product_floor` is the matrix products of graphfold's own plan alone, by torch, in memory that is
there already, and "of the products" is the speed of graphfold over that. It is no bound: kernels of
graphfold's own take products of small groups in less time than torch does, and a plan that shares
more has fewer of them. On another machine the figures move with it."""


def render(paths: Sequence[Path], modules: Mapping[str, str]) -> str:
    """The page.

    Args:
        paths: JSON files of `graphfold bench`.
        modules: benchmark -> the module whose docstring says what it measures.

    Raises:
        ConfigError: if there is no file, or one was not written by `graphfold bench`.
    """
    if not paths:
        raise ConfigError("bench page needs the JSON files of benchmarks. Name at least one.")
    rows = [row for path in paths for row in _read(path)]
    names = [name for name in modules if any(_section(row) == name for row in rows)]
    parts = [INTRODUCTION, _machine(rows)]
    for name in names:
        parts.append(f"## {name}\n\n{_description(modules[name])}")
        parts += tables([row for row in rows if _section(row) == name])
    return "\n\n".join(parts) + "\n"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read as JSON ({error}). Name another file."
        ) from error
    rows = content if isinstance(content, list) else []
    if not rows or not all(isinstance(row, dict) and _FACTS.issubset(row) for row in rows):
        raise ConfigError(f"{path}: was not written by graphfold bench --json. Name another file.")
    return rows


def _section(row: Mapping[str, Any]) -> str:
    """The benchmark that a row belongs to; sst_epoch is a part of sst."""
    return str(row["benchmark"]).partition("_")[0]


def _machine(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where the figures come from."""
    machines = dict.fromkeys(
        (row["cpu"], row["isa"], row["torch"], row["products"]) for row in rows
    )
    lines = [
        f"Measured on: {cpu}, {isa}, torch {version}, {products} products."
        for cpu, isa, version, products in machines
    ]
    speed = max(map(_products_speed, rows), default=0.0)
    if speed:
        lines.append(
            f"There, products of groups reach {speed:.0f} GFLOP/s on one thread (`product_floor` "
            "of treefc)."
        )
    return "\n".join(lines)


def _products_speed(row: Mapping[str, Any]) -> float:
    """GFLOP/s of the products of Tree-FC on one thread; 0 for other rows."""
    keys = ("benchmark", "variant", "phase", "threads")
    if [row.get(key) for key in keys] != ["treefc", "product_floor", "inference", 1]:
        return 0.0
    operations = 4 * (NUM_LEAVES - 1) * int(row["hidden_size"]) ** 2  # of a tree
    return operations * float(row["examples_per_second"]) / 1e9


def _description(module: str) -> str:
    """What the benchmark's own file says of it, its command as a block of code."""
    text = cleandoc(importlib.import_module(module).__doc__ or "")
    return re.sub(r"^    (graphfold .*)$", r"```sh\n\1\n```", text, flags=re.MULTILINE)
