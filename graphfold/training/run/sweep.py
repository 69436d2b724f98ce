"""The table of a sweep: every run, then mean and deviation of those that differ in seed or fold."""

from __future__ import annotations

import csv
import io
import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from graphfold.files import write_json, write_text
from graphfold.training.config.compose import task_overrides
from graphfold.training.process.launch import is_first
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder

#: Overrides whose values are repetitions of one setting: means are taken over them.
REPEATED = ("seed", "data.seed", "data.fold")

#: The folder in that of a sweep where its runs write what the table is made of.
RECORDS = ".runs"

#: Column -> value.
Row = dict[str, Any]


def record_run(hydra: DictConfig, folder: Path | None) -> float | None:
    """Records the end of a run in the folder of its sweep.

    Args:
        hydra: the hydra node of the run's config.
        folder: the run folder; None if the run failed.

    Returns:
        The metric under val/ that chose the best epoch, for a sweeper that searches.
    """
    record: Row = {"run": hydra.job.num}
    if folder is not None:
        files = RunFolder(folder)
        words = (word.lstrip("+").partition("=") for word in task_overrides(hydra))
        record["overrides"] = {key: value for key, _, value in words}
        record["metrics"] = json.loads(files.metrics.read_text(encoding="utf-8"))
        record["monitor"] = Checkpoint.load(files.best).config["monitor"]
    path = Path(hydra.runtime.cwd) / hydra.sweep.dir / RECORDS / f"{hydra.job.num}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return None if folder is None else record["metrics"].get(record["monitor"])


def begin_sweep(folder: Path) -> None:
    """Removes the records of a killed sweep from the folder."""
    if is_first():
        shutil.rmtree(folder / RECORDS, ignore_errors=True)


def report_sweep(folder: Path) -> bool:
    """Prints the table of a sweep and writes sweep.csv; returns whether a run failed."""
    if not is_first():
        return False
    records = [json.loads(path.read_text()) for path in (folder / RECORDS).glob("*.json")]
    shutil.rmtree(folder / RECORDS, ignore_errors=True)
    done = sorted((r for r in records if "metrics" in r), key=lambda record: int(record["run"]))
    if done:
        _write_table(done, folder)
    failed = sorted(record["run"] for record in records if "metrics" not in record)
    if failed:
        numbers = ", ".join(map(str, failed))
        text = f"{len(failed)} of {len(records)} runs failed: {numbers} in {folder}"
        print(text, file=sys.stderr)
    return bool(failed)


def _write_table(records: Sequence[Row], folder: Path) -> None:
    given = dict.fromkeys(key for record in records for key in record["overrides"])
    keys = [key for key in given if len({r["overrides"].get(key) for r in records}) > 1]
    rows = [{"run": r["run"], **r["overrides"], **r["metrics"]} for r in records]
    rows += [row for group in _groups(records, keys) for row in _means(group, keys)]
    metrics = dict.fromkeys(name for record in records for name in record["metrics"])
    text = io.StringIO()
    writer = csv.DictWriter(
        text, ["run", *keys, *metrics], extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "sweep.csv", text.getvalue())
    name = records[0]["monitor"].partition("/")[2]
    columns = ["run", *keys, f"val/{name}", f"test/{name}"]
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    Console(width=max(80, 16 * len(columns))).print(table)
    print(f"all metrics: {folder / 'sweep.csv'}", flush=True)


def _groups(records: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    """Two runs or more that differ in nothing but their seed or fold."""
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for record in records:
        setting = tuple(record["overrides"].get(key) for key in keys if key not in REPEATED)
        groups.setdefault(setting, []).append(record)
    return [group for group in groups.values() if len(group) > 1]


def _means(group: Sequence[Row], keys: Sequence[str]) -> Iterator[Row]:
    """The rows of mean and deviation; a metric that is undefined in a run has none."""
    setting = {k: v for k, v in group[0]["overrides"].items() if k in keys and k not in REPEATED}
    for name, statistic in (("mean", statistics.mean), ("deviation", statistics.stdev)):
        values = {key: [r["metrics"].get(key) for r in group] for key in group[0]["metrics"]}
        defined = {key: numbers for key, numbers in values.items() if None not in numbers}
        yield {"run": name, **setting, **{key: statistic(n) for key, n in defined.items()}}


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
