"""Results: the rows of a benchmark as a table on the terminal, and as docs/benchmarks.md.

graphfold bench page avx2/*.json avx512/*.json > docs/benchmarks.md
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table

from graphfold.bench.measure import Row
from graphfold.errors import ConfigError

#: Wider than any table, so that it can be asked for its own width.
_ANY_WIDTH = 10_000


def print_rows(name: str, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Prints the rows of a benchmark, without the columns that all rows leave empty.

    Args:
        name: the benchmark.
        rows: what it measured, at least one.
        facts: of the machine.
    """
    where = facts["cpu"] if facts["device"] == "cpu" else f"{facts['device']}, {facts['cpu']}"
    print(f"{name}: {where}, {facts['isa']}, torch {facts['torch']}, {rows[0].threads} thread(s)")
    cells = [_cells(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD)
    for heading in dict.fromkeys(key for row in cells for key, text in row.items() if text):
        is_number = any(row.get(heading, "")[:1].isdigit() for row in cells)
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for row in cells:
        table.add_row(*(row.get(str(column.header), "") for column in table.columns))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console.width = _ANY_WIDTH
        console.width = console.measure(table).maximum
    console.print(table)


def _cells(row: Row) -> dict[str, str]:
    return {
        "workload": row.extra.get("workload", ""),
        "shape": row.shape,
        "hidden": str(row.hidden_size or ""),
        "batch": str(row.batch_size),
        "phase": row.phase,
        "variant": row.variant,
        "computes": row.computes,
        "examples/s": f"{row.examples_per_second:,.0f}",
        "ratio": f"{row.ratio:.2f}",
        "spread": f"{row.spread:.0%}",
        **{key.replace("_", " "): number_text(value) for key, value in row.extra.items()},
    }


def number_text(value: Any) -> str:
    """A number with three digits, or all that stand before the point; other values as they are."""
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


#: A row as JSON has it.
JsonRow: TypeAlias = Mapping[str, Any]

#: What tells where a row was measured; rows that differ in this have columns of their own.
FACTS = ("device", "cpu", "isa", "torch")

#: What a line of a table is about; all else in a row are figures.
SETTING = (
    "workload", "shape", "hidden_size", "batch_size", "threads", "phase", "variant", "computes",
)  # fmt: skip

#: Figures without a column of their own.
FIGURES = ("benchmark", "examples_per_second", "ratio", "spread")

#: What the page begins with.
INTRODUCTION = """\
# Benchmarks

This page is made by `graphfold bench page FILE...` from the files that benchmarks write with
`--json`. Run them with nothing else on the machine; `--isa avx2` and `--isa avx512` keep a process
to an instruction set.

Figures are examples per second, from the median time of turns that the variants take one after
another in one process, on the same weights and threads. Before that, outputs and gradients of all
variants are compared entry by entry in double precision.

Each line says what its variant computes: every node of a batch, or equal nodes only once. A ratio
of two lines that differ in this contains the gain from sharing. `product_floor` is the matrix
products of a plan alone, by torch, in preallocated memory. It is no bound: graphfold's own kernels
need less time than torch for the products of small groups."""


def render(paths: Sequence[Path], modules: Mapping[str, str]) -> str:
    """The page.

    Args:
        paths: JSON files of `graphfold bench`, of one machine or instruction set or several.
        modules: benchmark -> the module whose docstring says what it measures.

    Raises:
        ConfigError: if there is no file, or one was not written by `graphfold bench`.
    """
    if not paths:
        raise ConfigError("bench page needs the JSON files of benchmarks. Name at least one.")
    rows = [row for path in paths for row in _read(path)]
    parts = [INTRODUCTION, _machines(rows)]
    for name, module in modules.items():
        own = [row for row in rows if row["benchmark"] == name]
        if own:
            parts += [f"## {name}", _description(module), table(own)]
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[JsonRow]) -> str:
    """A line for each setting and variant of a benchmark, with the speed on each machine.

    Further figures come behind, once where all machines agree.
    """
    machines = list(dict.fromkeys(map(_facts, rows)))
    labels = _labels(machines)
    lines: dict[tuple[Any, ...], dict[tuple[Any, ...], JsonRow]] = {}
    for row in rows:
        setting = tuple(row.get(key, "") for key in SETTING)
        lines.setdefault(setting, {})[_facts(row)] = row
    shown = [n for n, key in enumerate(SETTING) if _is_shown(key, rows)]
    known = (*SETTING, *FACTS, *FIGURES)
    figures = list(dict.fromkeys(key for row in rows for key in row if key not in known))
    headings = [SETTING[n].removesuffix("_size") for n in shown]
    headings += [*labels, *(figure.replace("_", " ") for figure in figures)]
    return _markdown(
        [
            headings,
            ["---"] * len(headings),
            *(
                [
                    *(number_text(setting[n]) for n in shown),
                    *(_speed(line.get(machine)) for machine in machines),
                    *(_figure(line.values(), figure) for figure in figures),
                ]
                for setting, line in lines.items()
            ),
        ]
    )


def _is_shown(key: str, rows: Sequence[JsonRow]) -> bool:
    """A setting that no row has, or a single thread everywhere, needs no column."""
    default = 1 if key == "threads" else ""
    return any(row.get(key) not in (None, "", 0, default) for row in rows)


def _speed(row: JsonRow | None) -> str:
    return "" if row is None else f"{row['examples_per_second']:,.0f}"


def _figure(rows: Iterable[JsonRow], key: str) -> str:
    texts = dict.fromkeys(number_text(row[key]) for row in rows if key in row)
    return " / ".join(texts)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _facts(row: JsonRow) -> tuple[Any, ...]:
    return tuple(row[fact] for fact in FACTS)


def _labels(machines: Sequence[tuple[Any, ...]]) -> list[str]:
    """The facts in which machines differ."""
    if len(machines) == 1:
        return ["examples/s"]
    differing = [n for n in range(len(FACTS)) if len({machine[n] for machine in machines}) > 1]
    return [", ".join(str(machine[n]) for n in differing) for machine in machines]


def _machines(rows: Sequence[JsonRow]) -> str:
    """The lines that say where the figures come from."""
    lines = []
    for machine in dict.fromkeys(map(_facts, rows)):
        device, cpu, isa, torch = machine
        place = cpu if device == "cpu" else f"{device} ({cpu})"
        lines.append(f"- {place}, {isa}, torch {torch}")
    return "Measured on:\n\n" + "\n".join(lines)


def _read(path: Path) -> list[JsonRow]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read as JSON ({error}). Name another file."
        ) from error
    rows = content if isinstance(content, list) else []
    needed = {*FACTS, *FIGURES, "variant"}
    if not rows or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
        raise ConfigError(f"{path}: was not written by graphfold bench --json. Name another file.")
    return rows


def _description(module: str) -> str:
    """The text of the benchmark's own file, its command as a block of code."""
    text = cleandoc(importlib.import_module(module).__doc__ or "")
    return re.sub(r"^    (graphfold .*)$", r"```sh\n\1\n```", text, flags=re.MULTILINE)
