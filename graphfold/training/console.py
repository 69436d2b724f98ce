"""Output of the commands: descriptions of data, tables of metrics and confusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from io import StringIO

from rich.console import Console
from rich.table import Table

from graphfold.datasets.data_module import DataModule
from graphfold.datasets.features.scalers import missing_inputs
from graphfold.errors import LeftOut, count_of
from graphfold.layers.heads.head import Head

#: The number of bad records that are shown before "and N more".
_SHOWN = 3

#: The largest number of classes of a printed confusion matrix; with more, so many mistakes.
MOST_CLASSES = 30


def describe_data(data: DataModule) -> str:
    """The sizes of the parts, the notes of the split, and what was left out."""
    sizes = data.split.sizes()
    parts = ", ".join(f"{size} {name}" for name, size in sizes.items())
    total = count_of(sum(sizes.values()), "record")
    lines = [f"{total}: {parts} ({data.split.method} split)"]
    lines += [*data.split.notes, *missing_inputs(data.facts)]
    lines += data.source.spec.make().notes(data.facts) + data.word_notes
    bad = [e.place_and_fault for e in data.skipped if not isinstance(e, LeftOut)]
    if bad:
        lines.append(f"left out: {count_of(len(bad), 'bad record')}")
        lines += [f"  {message}" for message in bad[:_SHOWN]]
        lines += [f"  and {len(bad) - _SHOWN} more"] * (len(bad) > _SHOWN)
    unmeasured = len(data.skipped) - len(bad)
    if unmeasured:
        lines.append(f"left out: {count_of(unmeasured, 'record')} without a measured target")
    if data.num_changed:
        lines.append(f"changed before reading: {count_of(data.num_changed, 'record')}")
    return "\n".join(lines)


#: The largest numbers of targets and of metrics in the table by target.
_MOST_TARGETS, _MOST_COLUMNS = 20, 8


def metrics_table(metrics: Mapping[str, float | None]) -> str:
    """The metrics, a row for each name and a column for each part.

    Of several targets there is a second table for the last part: a row for each target and a
    column for each metric.
    """
    parts = by_part(metrics)
    overall = {
        part: {name: value for name, value in values.items() if "/" not in name}
        for part, values in parts.items()
    }
    tables = [format_table(overall)]
    last = next(reversed(parts), "")
    if any("/" in name for name in parts.get(last, {})):
        tables.append(_target_table(last, parts[last]))
    return "\n".join(tables)


def _target_table(part: str, values: Mapping[str, float | None]) -> str:
    """The metrics of each target in one part."""
    columns: dict[str, dict[str, float | None]] = {}
    for name, value in values.items():
        metric, _, target = name.partition("/")
        if target and (metric in columns or len(columns) < _MOST_COLUMNS):
            columns.setdefault(metric, {})[target] = value
    targets = list(dict.fromkeys(target for column in columns.values() for target in column))
    shown = targets[:_MOST_TARGETS]
    table = format_table({m: {t: column.get(t) for t in shown} for m, column in columns.items()})
    more = f"\nand {len(targets) - len(shown)} more targets" if len(targets) > len(shown) else ""
    return f"{part} by target\n{table}{more}"


def describe_positive(head: Head) -> str | None:
    """The positive classes, for areas, F1 and recall; None without binary targets."""
    if head.task != "binary":
        return None
    labels = {column.name: head.labels(column) for column in head.columns}
    positive = {name: str(both[1]) for name, both in labels.items() if len(both) == 2}
    if len({*positive.values()}) == 1:
        return f"positive class: {next(iter(positive.values()))}"
    listed = ", ".join(f"{label} of {name}" for name, label in positive.items())
    return f"positive classes: {listed}" if listed else None


def by_part(metrics: Mapping[str, float | None]) -> dict[str, dict[str, float | None]]:
    """Part -> metric -> value, from keys PART/METRIC, without redundant metrics.

    Redundant are `mse` beside `rmse`, a `coverage` of 1, and test/rmse/TASK of a single task.
    """
    tasks = {key.split("/", 2)[2] for key in metrics if key.count("/") > 1}
    parts: dict[str, dict[str, float | None]] = {}
    for key, value in metrics.items():
        part, _, name = key.partition("/")
        metric = name.partition("/")[0]
        if (
            metric != "mse"
            and (metric, value) != ("coverage", 1)
            and ("/" not in name or len(tasks) > 1)
        ):
            parts.setdefault(part, {})[name] = value
    return parts


def format_table(columns: Mapping[str, Mapping[str, float | None]], least: int = 10) -> str:
    """Numbers for a terminal: a column for each part or score, a row for each metric or class.

    Args:
        columns: name of a column -> name of a row -> number.
        least: the least width of a column.
    """
    if not columns:
        return ""
    table = Table("", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", min_width=least)
    for name in dict.fromkeys(name for values in columns.values() for name in values):
        cells = (format_value(v[name]) if name in v else "" for v in columns.values())
        table.add_row(name, *cells)
    console = Console(file=StringIO(), color_system=None, width=10_000, markup=False, emoji=False)
    with console.capture() as text:
        console.print(table)
    return text.get().rstrip("\n")


def format_confusion(counts: Mapping[str, Mapping[str, float | None]]) -> str:
    """A confusion matrix for a terminal, a row for each true class; or frequent mistakes.

    Args:
        counts: predicted class -> true class -> number.
    """
    if len(counts) <= MOST_CLASSES:
        return format_table(counts, least=0)
    lines = [f"{true} as {wrong}: {n}" for wrong, true, n in frequent_mistakes(counts)]
    return "\n".join(lines)


def frequent_mistakes(
    counts: Mapping[str, Mapping[str, float | None]],
) -> list[tuple[str, str, float]]:
    """The most frequent mistakes: (predicted class, true class, number)."""
    mistakes = [
        (wrong, true, n)
        for wrong, column in counts.items()
        for true, n in column.items()
        if n and wrong != true
    ]
    return nlargest(MOST_CLASSES, mistakes, key=lambda mistake: mistake[2])


def format_value(value: float | None, digits: int = 6) -> str:
    """A metric in a table, with some digits."""
    if value is None:
        return "undefined"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def print_new(lines: Sequence[str], printed: set[str] | None) -> None:
    """Prints the lines that are not in `printed`, and adds them to it."""
    for line in lines:
        if line not in (printed or ()):
            print(line, flush=True)
    if printed is not None:
        printed.update(lines)
