"""What a command prints: the data in a line, the metrics in a table."""

from __future__ import annotations

from collections.abc import Mapping

from graphfold.datasets.loading.data_module import DataModule
from graphfold.errors import LeftOut, count_of

#: How many bad records are shown before "and N more".
_SHOWN = 3


def describe_data(data: DataModule) -> str:
    """The sizes of the parts, the notes of the split, and what was left out."""
    sizes = data.split.sizes()
    parts = ", ".join(f"{size} {name}" for name, size in sizes.items())
    total = count_of(sum(sizes.values()), "record")
    lines = [f"{total}: {parts} ({data.split.method} split)"]
    lines += data.split.notes
    bad = [e.place_and_fault for e in data.skipped if not isinstance(e, LeftOut)]
    if bad:
        lines.append(f"left out: {count_of(len(bad), 'bad record')}")
        lines += [f"  {message}" for message in bad[:_SHOWN]]
        lines += [f"  and {len(bad) - _SHOWN} more"] * (len(bad) > _SHOWN)
    unasked = len(data.skipped) - len(bad)
    if unasked:
        lines.append(f"left out: {count_of(unasked, 'record')} without a measured target")
    return "\n".join(lines)


def describe_policy(calls: Mapping[str, float]) -> str:
    """The scheduling policy that was chosen, with the calls of cells that each one needs."""
    (name, fewest), *others = calls.items()
    more = "".join(f"; {other}: {count:.0f}" for other, count in others)
    return f"policy {name}: {fewest:.0f} calls of cells per batch{more}"


def metrics_table(metrics: Mapping[str, float | None]) -> str:
    """The metrics, a row for each name and a column for each part."""
    cells: dict[str, dict[str, str]] = {}
    for key, value in without_repeats(metrics).items():
        part, _, name = key.partition("/")
        cells.setdefault(name, {})[part] = format_value(value)
    parts = list(dict.fromkeys(key.partition("/")[0] for key in metrics))
    width = max((len(name) for name in cells), default=0)
    lines = [" " * width + "".join(f"{part:>12}" for part in parts)]
    for name, row in cells.items():
        lines.append(f"{name:<{width}}" + "".join(f"{row.get(part, ''):>12}" for part in parts))
    return "\n".join(lines)


def without_repeats(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """The metrics without test/rmse/TASK where there is one task, for test/rmse says the same."""
    tasks = {key.split("/", 2)[2] for key in metrics if key.count("/") > 1}
    return {k: v for k, v in metrics.items() if len(tasks) > 1 or k.count("/") < 2}


def format_value(value: float | None, digits: int = 6) -> str:
    """A metric as it is printed."""
    if value is None:
        return "undefined"
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"
