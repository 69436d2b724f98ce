"""The trials of a study: on the terminal, as trials.csv, and as a picture.

The picture has the history of the search, and the result over each of the values tried.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from graphfold.files import write_bytes, write_text
from graphfold.layers.heads.plots import BLUE, GREY, ORANGE
from graphfold.studies.tune_space import Dimension
from graphfold.training.console import format_value

#: The state of a trial whose values are tried anew, and that of one in another worker.
INTERRUPTED, RUNNING = "interrupted", "running"

#: Names of states in tables.
STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: RUNNING,
}

#: The attribute of a trial that says why it failed.
REASON = "reason"

#: The attribute of a trial that was begun beyond the number of trials, and is none of them.
BEYOND = "beyond"

#: How many trials the terminal shows.
_SHOWN = 10


def started(study: Study) -> list[FrozenTrial]:
    """The trials that were begun, in order."""
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state in STATES and BEYOND not in trial.user_attrs]


def counted(study: Study) -> list[FrozenTrial]:
    """The trials that came to an end of their own, and not by an interruption."""
    return [trial for trial in started(study) if state_of(trial) not in (INTERRUPTED, RUNNING)]


def running(study: Study) -> list[FrozenTrial]:
    """The trials that run now, in any worker."""
    return [trial for trial in started(study) if state_of(trial) == RUNNING]


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


_COLUMNS = 3


def draw_trials(study: Study, space: Sequence[Dimension], monitor: str, path: Path) -> None:
    """Writes an SVG file.

    Args:
        study: with at least one finished trial.
        space: the values that were tried.
        monitor: the name of the result.
        path: the file.
    """
    count = 1 + len(space)
    lines = math.ceil(count / _COLUMNS)
    figure = Figure(figsize=(3.6 * min(count, _COLUMNS), 2.9 * lines), layout="constrained")
    panels = list(figure.subplots(lines, min(count, _COLUMNS), squeeze=False).flat)
    _draw_history(panels[0], study)
    for axes, dimension in zip(panels[1:], space, strict=False):
        _draw_slice(axes, study, dimension)
    for axes in panels[:count]:
        axes.set_ylabel(monitor)
    for axes in panels[count:]:
        axes.set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    write_bytes(path, buffer.getvalue())


def _draw_history(axes: Axes, study: Study) -> None:
    """Results by trial, the best so far as a line; those that were stopped are pale."""
    done = [t for t in started(study) if t.state is TrialState.COMPLETE and t.value is not None]
    numbers, values = [t.number for t in done], [t.value or 0.0 for t in done]
    better = min if study.direction.name == "MINIMIZE" else max
    stopped = [
        (t.number, t.value)
        for t in started(study)
        if t.state is TrialState.PRUNED and t.value is not None
    ]
    if stopped:
        x, y = zip(*stopped, strict=True)
        axes.scatter(x, y, s=14, marker="x", color=GREY, label="stopped")
    axes.scatter(numbers, values, s=14, color=BLUE, label="finished")
    axes.step(numbers, list(accumulate(values, better)), where="post", color=ORANGE, label="best")
    axes.set_xlabel("trial")
    axes.legend(fontsize=8)


def _draw_slice(axes: Axes, study: Study, dimension: Dimension) -> None:
    """Results of finished trials over one value; the best one stands out."""
    done = [trial for trial in best_first(study) if dimension.key in trial.params]
    places = {value: place for place, value in enumerate(dimension.choices)}
    values = [trial.params[dimension.key] for trial in done]
    x = [float(places[value]) if places else float(value) for value in values]
    y = [trial.value or 0.0 for trial in done]
    axes.scatter(x[1:], y[1:], s=14, color=BLUE)
    axes.scatter(x[:1], y[:1], s=30, color=ORANGE)
    if places:
        axes.set_xticks(range(len(places)), [str(value) for value in places])
    if dimension.log:
        axes.set_xscale("log")
    axes.set_xlabel(dimension.key)
