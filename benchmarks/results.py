"""The rows of a benchmark as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Row

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
