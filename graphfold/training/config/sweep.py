"""Sweeps: one run for each combination of override values, one after another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.training.config.compose import compose, split_sweep
from graphfold.training.loop.train import train_command


def sweep(overrides: Sequence[str], config_dir: Path | None = None) -> int:
    """Runs every combination in a folder of its own, 0, 1, 2, ... of the sweep's folder.

    All configs are checked before the first run. A run that fails does not stop the others.

    Args:
        overrides: with lists of values, `seed=1,2,3`.
        config_dir: a further folder of config files.

    Returns:
        0, or 1 if a run failed.

    Raises:
        ConfigError: if an override or a config cannot be used.
    """
    jobs = split_sweep(overrides, config_dir)
    composed = [compose(job, config_dir) for job in jobs]
    if any(job.config["resume"] is not None for job in composed):
        raise ConfigError("-m starts new runs, it cannot resume one. Resume each run by itself.")
    folder = composed[0].sweep_folder
    failed = []
    for number, (job, run) in enumerate(zip(jobs, composed, strict=True)):
        print(f"[{number + 1}/{len(jobs)}] {' '.join(job)}", flush=True)
        try:
            if train_command(replace(run, folder=folder / str(number))):
                return 1  # interrupted
        except GraphfoldError as error:
            print(f"error: {error.message}", file=sys.stderr)
            failed.append(number)
    if failed:
        numbers = ", ".join(map(str, failed))
        print(f"{len(failed)} of {len(jobs)} runs failed: {numbers} in {folder}", file=sys.stderr)
    return 1 if failed else 0
