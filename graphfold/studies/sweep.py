"""Sweeps: what is checked before Hydra starts the runs, and the table when they have ended.

The table has every run, mean and deviation over seeds and folds, and the best.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import statistics
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.files import write_json, write_text
from graphfold.metrics.registry import find_metric
from graphfold.options import as_written
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import (
    Sources,
    compose_job,
    explained,
    load_whole,
    readable,
    resolving,
    split_sweep,
    split_sweeping,
    task_overrides,
)
from graphfold.training.config.overrides import in_hydras_grammar
from graphfold.training.config.stored_config import read_stored_config
from graphfold.training.process.launch import is_first
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
    config = read_stored_config(Checkpoint.load(files.best).config, files.best)
    monitor = str(config.monitor)
    names = config.metrics or [monitor.split("/")[1]]
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


@dataclass(frozen=True)
class Plan:
    """A sweep, checked as far as can be before it begins.

    Args:
        overrides: for Hydra.
        folder: of the sweep.
    """

    overrides: list[str]
    folder: Path


def plan_sweep(overrides: Sequence[str], sources: Sources, all_folds: bool = False) -> Plan:
    """Checks the configs of all runs of a sweep, if Hydra's own sweeper takes them in turn.

    Args:
        overrides: with lists of values, `seed=1,2,3`.
        sources: where config files are.
        all_folds: whether each combination is run once for every fold of its split.

    Raises:
        ConfigError: if an override or a config cannot be used.
    """
    words = list(overrides)
    fixed, _ = split_sweeping(words, sources)
    with explained(fixed, sources):
        sweeper, params = _sweeper(load_whole(fixed, sources))
    first = fixed
    if all_folds or sweeper == "basic":
        jobs = sweep_jobs([*params, *words], sources, all_folds)
        first = jobs[0]
        if all_folds:
            words.append(_all_folds(jobs))
        if sweeper == "basic":
            composed = [compose_job(job, sources) for job in jobs]
            if any(job.config.resume is not None for job in composed):
                raise ConfigError(
                    "-m starts new runs, it cannot resume one. Resume each run by itself."
                )
            for job in composed:
                check_parts(job.config)
    with readable():
        whole = load_whole(first, sources)
        with resolving(whole):  # the time in its name is now, and not when Hydra looks at it
            folder = Path(whole.hydra.sweep.dir)
    if is_first():
        shutil.rmtree(folder / RECORDS, ignore_errors=True)
    return Plan([*words, f"hydra.sweep.dir={in_hydras_grammar(folder)}"], folder)


def _sweeper(whole: DictConfig) -> tuple[str, list[str]]:
    """The name of the sweeper that a config chooses, and what it sweeps besides the overrides."""
    params = OmegaConf.select(whole, "hydra.sweeper.params") or {}
    name = str(whole.hydra.runtime.choices["hydra/sweeper"])
    return name, [f"{key}={value}" for key, value in params.items()]


def sweep_jobs(
    overrides: Sequence[str], sources: Sources, all_folds: bool = False
) -> list[list[str]]:
    """The overrides of every run; the arguments are those of `plan_sweep`."""
    jobs = split_sweep(overrides, sources)
    if all_folds:
        jobs = [run for job in jobs for run in _one_per_fold(job, sources)]
    return jobs


def _one_per_fold(job: list[str], sources: Sources) -> list[list[str]]:
    """The overrides of one run for each fold of the split that some overrides choose.

    Raises:
        ConfigError: if that split has no folds, or the overrides name one.
    """
    if any(word.lstrip("+").startswith("data.fold=") for word in job):
        raise ConfigError("--all-folds runs every fold, but data.fold names one. Leave one out.")
    data = compose_job(job, sources).config.settings
    repeats = {"kfold": 1, "repeated_kfold": data.num_repeats}.get(str(data.split))
    if repeats is None:
        raise ConfigError(
            f"--all-folds needs a split into folds, but data.split is '{as_written(data.split)}'. "
            "Add data.split=repeated_kfold, or kfold."
        )
    return [[*job, f"data.fold={fold}"] for fold in range(repeats * data.num_folds)]


def _all_folds(jobs: Sequence[Sequence[str]]) -> str:
    """The override that sweeps over the folds.

    Raises:
        ConfigError: if the runs have different numbers of folds.
    """
    folds = list(dict.fromkeys(job[-1] for job in jobs))
    if len({tuple(job[:-1]) for job in jobs}) * len(folds) != len(jobs):
        raise ConfigError(
            "--all-folds needs the same number of folds in all runs. Sweep over data.num_folds or "
            "data.num_repeats by a command for each value."
        )
    return "data.fold=" + ",".join(fold.partition("=")[2] for fold in folds)


#: The folder in that of a sweep where its runs write what the table is made of.
RECORDS = ".runs"


@dataclass
class Record:
    """The result of a run of a sweep, for the sweeper."""

    value: float | None = None  # of the metric under val/ that chose the best epoch


@contextmanager
def record_run(hydra: DictConfig, folder: Path, debug: bool) -> Iterator[Record]:
    """Within, a run of a sweep is trained; how it ended is written into the folder of the sweep.

    Args:
        hydra: the hydra node of its config.
        folder: of the run.
        debug: whether an error is printed with its traceback.
    """
    start = Path(hydra.runtime.cwd)
    path = start / hydra.sweep.dir / RECORDS / f"{hydra.job.num}.json"
    result, record = {"number": hydra.job.num, "failed": True}, Record()
    try:
        yield record
        if is_first():
            run = read_run(folder, hydra.job.num, task_overrides(hydra))
            record.value = run.metrics.get(run.monitor)
            result = asdict(run)
    except Exception as error:
        is_message = isinstance(error, GraphfoldError) and not debug
        text = f"error: {error}\n" if is_message else traceback.format_exc()
        print(text, end="", file=sys.stderr, flush=True)
        raise
    finally:
        if is_first():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, result)


def report_sweep(folder: Path) -> bool:
    """Prints the table of the runs of a sweep, and which of them failed.

    Args:
        folder: of the sweep.

    Returns:
        Whether one failed.
    """
    if not is_first():
        return False
    records = [json.loads(path.read_text()) for path in (folder / RECORDS).glob("*.json")]
    shutil.rmtree(folder / RECORDS, ignore_errors=True)
    records.sort(key=lambda record: int(record["number"]))
    done = [SweepRun(**record) for record in records if not record.get("failed")]
    failed = [record["number"] for record in records if record.get("failed")]
    if done:
        print(write_table(done, folder), flush=True)
    if failed:
        numbers = ", ".join(map(str, failed))
        text = f"{len(failed)} of {len(records)} runs failed: {numbers} in {folder}"
        print(text, file=sys.stderr)
    return bool(failed)
