"""Sweeps: one run for each combination of override values, one after another, and their table.

The table has every run, mean and deviation over seeds and folds, and the best.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.files import write_text
from graphfold.metrics.registry import find_metric, metric_names
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import Composed, compose, split_sweep
from graphfold.training.process.quiet import is_first, printing_once, warnings_once
from graphfold.training.run.checkpoint import Checkpoint
from graphfold.training.run.run_folder import RunFolder
from graphfold.training.scoring import Metrics, lower_is_better

#: Overrides whose values are repetitions of one experiment: means are taken over them.
REPEATED = ("seed", "data.seed", "data.fold")

MEAN, DEVIATION = "mean", "deviation"

#: Column -> value.
Row = dict[str, Any]


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    number: int
    overrides: Mapping[str, str]  # key -> value, as typed
    metrics: Metrics  # of metrics.json
    monitor: str  # the metric under val/ that chose its best epoch
    is_less_better: bool  # of that metric


def read_run(folder: Path, number: int, overrides: Sequence[str]) -> SweepRun:
    """Reads the overrides and metrics of a finished run.

    Args:
        folder: the run folder.
        number: of the run in the sweep.
        overrides: of the run.
    """
    files = RunFolder(folder)
    pairs = (word.partition("=") for word in overrides)
    config = Checkpoint.load(files.best).config
    monitor = str(config["monitor"])
    names = metric_names(config.get("metrics")) or [monitor.split("/")[1]]
    metrics = [find_metric(name) for name in names if name != "loss"]
    return SweepRun(
        number,
        {key.lstrip("+"): value for key, _, value in pairs},
        json.loads(files.metrics.read_text(encoding="utf-8")),
        monitor,
        lower_is_better(monitor, metrics),
    )


def write_table(runs: Sequence[SweepRun], folder: Path) -> str:
    """Writes sweep.csv with all metrics, and returns the table to print.

    Args:
        runs: the finished runs, at least one.
        folder: of the sweep.

    Returns:
        A line per run; mean and standard deviation (of a sample) of runs that differ in seed or
        fold alone; the best run, or the best of several means, by the metric that chose the epochs:
        of seeds and folds alone none is the best. Shown of the metrics are that one and the same on
        the test part.
    """
    keys = _varied(runs)
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    rows = [_run_row(run, keys) for run in runs]
    means = [row for group in _groups(runs, keys) if len(group) > 1 for row in _means(group, keys)]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["run", *keys, *metrics], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows + means)
    write_text(folder / "sweep.csv", text.getvalue())
    name = runs[0].monitor.partition("/")[2]
    columns = ["run", *keys, *(f"{part}/{name}" for part in ("val", "test"))]
    lines = [columns, *([_cell(row.get(key, "")) for key in columns] for row in rows + means)]
    groups = [row for row in means if row["run"] == MEAN]
    best = _best(groups or rows, runs[0], keys)
    return "\n".join([*_aligned(lines), *best, f"all metrics: {folder / 'sweep.csv'}"])


def _varied(runs: Sequence[SweepRun]) -> list[str]:
    """The keys whose values are not those of all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.overrides)
    return [key for key in keys if len({run.overrides.get(key) for run in runs}) > 1]


def _groups(runs: Sequence[SweepRun], keys: Sequence[str]) -> list[list[SweepRun]]:
    """Runs that differ in nothing but their seed or fold."""
    groups: dict[tuple[str | None, ...], list[SweepRun]] = {}
    for run in runs:
        setting = tuple(run.overrides.get(key) for key in keys if key not in REPEATED)
        groups.setdefault(setting, []).append(run)
    return list(groups.values())


def _run_row(run: SweepRun, keys: Sequence[str]) -> Row:
    return {"run": run.number, **{key: run.overrides.get(key, "") for key in keys}, **run.metrics}


def _means(group: Sequence[SweepRun], keys: Sequence[str]) -> Iterator[Row]:
    """The rows of mean and deviation of a group; a metric that is undefined in a run has none."""
    setting = {key: group[0].overrides.get(key, "") for key in keys if key not in REPEATED}
    for name, statistic in ((MEAN, statistics.mean), (DEVIATION, statistics.stdev)):
        row: Row = {"run": name, **setting}
        for metric in group[0].metrics:
            values = [run.metrics.get(metric) for run in group]
            known = [value for value in values if value is not None]
            row[metric] = statistic(known) if len(known) == len(values) else None
        yield row


def _best(rows: Sequence[Row], run: SweepRun, keys: Sequence[str]) -> list[str]:
    """The line that names the best run, or nothing where there is one run or no value."""
    monitor = run.monitor
    values = [(float(row[monitor]), row) for row in rows if row.get(monitor) is not None]
    if len(rows) < 2 or not values:
        return []
    choose = min if run.is_less_better else max
    value, row = choose(values, key=lambda pair: pair[0])
    setting = " ".join(f"{key}={row[key]}" for key in keys if row.get(key, "") != "")
    return [f"best by {monitor}: {setting} (run {row['run']}), {value:.6g}"]


def _cell(value: Any) -> str:
    if value is None:
        return "undefined"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) for line in lines]


def sweep(overrides: Sequence[str], config_dir: Path | None = None, all_folds: bool = False) -> int:
    """Runs every combination in a folder of its own, 0, 1, 2, ... of the sweep's folder.

    All configs are checked before the first run. A run that fails does not stop the others. At the
    end there is a table of all runs, with means and deviations; sweep.csv has all metrics.

    Args:
        overrides: with lists of values, `seed=1,2,3`.
        config_dir: a further folder of config files.
        all_folds: whether each combination is run once for every fold of its split.

    Returns:
        0, or 1 if a run failed.

    Raises:
        ConfigError: if an override or a config cannot be used.
    """
    jobs = sweep_jobs(overrides, config_dir, all_folds)
    composed = [compose(job, config_dir) for job in jobs]
    if any(job.config["resume"] is not None for job in composed):
        raise ConfigError("-m starts new runs, it cannot resume one. Resume each run by itself.")
    for job in composed:
        check_parts(job.config)
    folder = composed[0].sweep_folder
    with warnings_once():
        return _run_all(jobs, composed, folder)


def sweep_jobs(
    overrides: Sequence[str], config_dir: Path | None, all_folds: bool
) -> list[list[str]]:
    """The overrides of every run; the arguments are those of `sweep`."""
    jobs = split_sweep(overrides, config_dir)
    if all_folds:
        jobs = [run for job in jobs for run in _one_per_fold(job, config_dir)]
    return jobs


def _one_per_fold(job: list[str], config_dir: Path | None) -> list[list[str]]:
    """The overrides of one run for each fold of the split that some overrides choose.

    Raises:
        ConfigError: if that split has no folds, or the overrides name one.
    """
    if any(word.lstrip("+").startswith("data.fold=") for word in job):
        raise ConfigError("--all-folds runs every fold, but data.fold names one. Leave one out.")
    data = compose(job, config_dir).config["data"]
    repeats = {"kfold": 1, "repeated_kfold": data.get("num_repeats")}.get(data.get("split"))
    if repeats is None:
        raise ConfigError(
            f"--all-folds needs a split into folds, but data.split is '{data.get('split')}'. Add "
            "data.split=repeated_kfold, or kfold."
        )
    return [[*job, f"data.fold={fold}"] for fold in range(repeats * data["num_folds"])]


def _run_all(jobs: Sequence[Sequence[str]], composed: Sequence[Composed], folder: Path) -> int:
    from graphfold.recipe import train_command

    said: set[str] = set()
    failed: list[int] = []
    done: list[SweepRun] = []
    for number, (job, run) in enumerate(zip(jobs, composed, strict=True)):
        with printing_once():
            print(f"[{number + 1}/{len(jobs)}] {' '.join(job)}", flush=True)
        own = folder / str(number)
        try:
            if train_command(replace(run, folder=own), said=said):
                return 1  # interrupted
            if is_first():
                done.append(read_run(own, number, job))
        except GraphfoldError as error:
            print(f"error: {error.message}", file=sys.stderr)
            failed.append(number)
    if done:
        print(write_table(done, folder))
    if failed:
        numbers = ", ".join(map(str, failed))
        print(f"{len(failed)} of {len(jobs)} runs failed: {numbers} in {folder}", file=sys.stderr)
    return 1 if failed else 0
