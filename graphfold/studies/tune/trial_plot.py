"""The picture of a search: its history, and the result over each of the values tried."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna import Study
from optuna.trial import TrialState

from graphfold.files import write_bytes
from graphfold.layers.heads.plots import BLUE, GREY, ORANGE
from graphfold.studies.tune.space import Dimension
from graphfold.studies.tune.trial_table import best_first, started

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
