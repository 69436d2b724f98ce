"""Sweeps: one run for each combination of override values, one after another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.studies.sweep.sweep_table import SweepRun, read_run, write_table
from graphfold.training.config.check_parts import check_parts
from graphfold.training.config.compose import Composed, compose, split_sweep
from graphfold.training.process.quiet import warnings_once
from graphfold.training.process.ranks import is_first, printing_once


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
    from graphfold.recipe import train_command  # brings Lightning along

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
