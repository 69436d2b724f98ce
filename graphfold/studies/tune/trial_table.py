"""The trials of a study as a table: on the terminal, and as trials.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from graphfold.files import write_text
from graphfold.training.console import format_value

#: The state of a trial whose values are tried anew when the search goes on.
INTERRUPTED = "interrupted"

#: Names of states in tables.
STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: INTERRUPTED,
}

#: The attribute of a trial that says why it failed.
REASON = "reason"

#: How many trials the terminal shows.
_SHOWN = 10


def started(study: Study) -> list[FrozenTrial]:
    """The trials that were begun, in order."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state in STATES]


def counted(study: Study) -> list[FrozenTrial]:
    """The trials that came to an end of their own, and not by an interruption."""
    return [trial for trial in started(study) if state_of(trial) != INTERRUPTED]


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial in words; one that failed without a reason was interrupted."""
    if trial.state is TrialState.FAIL and REASON not in trial.user_attrs:
        return INTERRUPTED
    return STATES[trial.state]


def write_trials(study: Study, keys: Sequence[str], monitor: str, path: Path) -> None:
    """Writes trials.csv: every trial with its values, its result, and why it failed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *keys, monitor, "state", "epochs", "seconds", REASON])
    for trial in started(study):
        seconds = "" if trial.duration is None else f"{trial.duration.total_seconds():.1f}"
        value = "" if trial.value is None else repr(trial.value)
        writer.writerow(
            [
                trial.number,
                *(trial.params.get(key, "") for key in keys),
                value,
                state_of(trial),
                trial.last_step or 0,
                seconds,
                trial.user_attrs.get(REASON, ""),
            ]
        )
    write_text(path, text.getvalue())


def best_first(study: Study) -> list[FrozenTrial]:
    """The finished trials, the best first."""
    sign = 1 if study.direction.name == "MINIMIZE" else -1
    done = [trial for trial in started(study) if trial.state is TrialState.COMPLETE]
    return sorted(done, key=lambda trial: sign * (trial.value or 0.0))


def format_trials(study: Study, keys: Sequence[str], monitor: str) -> str:
    """The best trials, and how many stopped or failed."""
    rows = [["trial", *keys, monitor]]
    for trial in best_first(study)[:_SHOWN]:
        values = [_cell(trial.params.get(key)) for key in keys]
        rows.append([str(trial.number), *values, format_value(trial.value)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
    states = [state_of(trial) for trial in counted(study)]
    counts = [f"{states.count(name)} {name}" for name in dict.fromkeys(STATES.values())]
    return "\n".join([*lines, f"{len(states)} trials: {', '.join(counts[:3])}"])


def _cell(value: object) -> str:
    return format_value(value, 4) if isinstance(value, float) else str(value)
