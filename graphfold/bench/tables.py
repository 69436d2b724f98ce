"""Rows as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from graphfold.bench.measure import Row

#: Wider than any table, so that it can be asked for its own width.
_ANY_WIDTH = 10_000


def print_rows(name: str, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Prints the rows of a benchmark, without the columns that all rows leave empty.

    Args:
        name: the benchmark.
        rows: what it measured, at least one.
        facts: of the machine.
    """
    title = (
        f"{name}: {facts['cpu']}, {facts['isa']}, torch {facts['torch']}, "
        f"{rows[0].threads} thread(s), {facts['products']} products"
    )
    cells = [_cells(row) for row in rows]
    headings = list(dict.fromkeys(key for row in cells for key, text in row.items() if text))
    lines = [[row.get(heading, "") for heading in headings] for row in cells]
    print_table(title, headings, lines)


def print_table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Prints a table, in full where there is no terminal to fit it to."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(headings):
        is_text = not any(line[number][:1].isdigit() for line in lines)
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width of its own
        console.width = _ANY_WIDTH
        console.width = console.measure(table).maximum
    print(title)
    console.print(table)


def _cells(row: Row) -> dict[str, str]:
    return {
        "benchmark": row.benchmark,
        "shape": row.shape,
        "hidden": str(row.hidden_size or ""),
        "batch": str(row.batch_size),
        "phase": row.phase,
        "variant": row.variant,
        "examples/s": f"{row.examples_per_second:,.0f}",
        "ratio": f"{row.ratio:.2f}",
        "spread": f"{row.spread:.0%}",
        **{key.replace("_", " "): _text(value) for key, value in row.extra.items()},
    }


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
