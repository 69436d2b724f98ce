"""`graphfold bench profile`: tables of where a training step's time goes, and what was not batched.

graphfold bench profile experiment=sst_tree_lstm data.batch_size=256
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfold.bench.experiment import load_trainable
from graphfold.bench.profile import Profile, profile
from graphfold.bench.tables import print_table
from graphfold.files import write_text


def run_profile(
    overrides: Sequence[str], facts: Mapping[str, Any], json_path: Path | None = None
) -> None:
    """Profiles the experiment that the overrides name, and prints the tables.

    Args:
        overrides: of the config, as for training.
        facts: of the machine.
        json_path: where the profile is written as JSON.

    Raises:
        GraphfoldError: if the config or the data cannot be used.
    """
    experiment = load_trainable(overrides)
    found = profile(experiment)
    _print_times(experiment.config["name"], found, facts)
    _print_launches(found)
    for line in _remarks(found):
        print(line)
    if json_path is not None:
        report = {"experiment": experiment.config["name"], **found.to_dict(), **facts}
        write_text(json_path, json.dumps(report, indent=1) + "\n")


def _print_times(name: str, found: Profile, facts: Mapping[str, Any]) -> None:
    lines = [
        [part, f"{seconds * 1e3:.2f}", f"{seconds / found.total:.1%}"]
        for part, seconds in found.seconds.items()
    ]
    title = (
        f"{name}: a step of {found.batch_size:.0f} graphs takes {found.total * 1e3:.1f} ms, "
        f"{facts['isa']}, {facts['products']} products"
    )
    print_table(title, ["part of a training step", "ms", "share"], lines)


def _print_launches(found: Profile) -> None:
    headings = ["pass", "type", "rounds", "rows", "groups", "rows per group", "groups of one row"]
    lines = []
    for line in found.launches:
        figures = (line.rows, line.groups, line.rows_per_group, line.single_groups)
        texts = [f"{value:,.1f}" for value in figures]
        lines.append([line.pass_name, line.type_name, str(line.rounds), *texts])
    print_table("what runs together, per batch", headings, lines)


def _remarks(found: Profile) -> list[str]:
    """What was not batched, in words."""
    remarks = [
        f"not batched: {line.single_groups:.1f} groups of type '{line.type_name}' in "
        f"{line.pass_name} hold one row each."
        for line in found.launches
        if line.single_groups
    ]
    remarks += [
        f"not batched: the gradient of {parameter}, which {function} uses, is taken group by group."
        for parameter, function in found.per_group
    ]
    remarks += [f"falls back: {message}" for message in found.fallbacks]
    return remarks or ["everything was batched: no group of one row, every gradient taken at once."]
