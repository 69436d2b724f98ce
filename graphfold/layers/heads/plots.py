"""Plots of predictions against targets; importing this module loads matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from graphfold.dag import Column
from graphfold.errors import ellipsis
from graphfold.layers.heads.eval_rows import MetricInputs

BLUE, ORANGE, GREY = "#2b6cb0", "#dd6b20", "#718096"

#: Targets in a row of a figure; the largest number of its rows, and of its classes.
_IN_A_ROW, _MOST_ROWS, _MOST_CLASSES = 4, 6, 30

#: The largest number of records in a plot: with 100,000 a figure took 340 MB, the report 26 MB.
MOST_POINTS = 5_000


def confusion_plot(confusion: Tensor, labels: Sequence[Any]) -> Figure | None:
    """A confusion matrix, as shares of the true class; None if empty or of too many classes."""
    count = len(labels)
    if not bool(confusion.any()) or count > _MOST_CLASSES:
        return None
    share = (confusion / confusion.sum(1, keepdim=True).clamp(min=1)).numpy()
    figure = Figure(figsize=(5.0, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.grid(False)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the class", shrink=0.8)
    axes.set(xlabel="predicted class", ylabel="class")
    texts = [str(label) for label in labels]
    if count <= 20:
        axes.set_xticks(range(count), texts, rotation=90 if max(map(len, texts)) > 2 else 0)
        axes.set_yticks(range(count), texts)
    if count <= 12:
        for (row, column), value in np.ndenumerate(share):
            colour = "white" if value > 0.5 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, size=7)
    return figure


def scatter_plots(
    columns: Sequence[Column], inputs: MetricInputs, intervals: MetricInputs | None = None
) -> Figure | None:
    """Predicted against measured numbers of each target; None if nothing is measured.

    At most `MOST_POINTS` records are shown, evenly spread over the rows.

    Args:
        columns: the targets, for their units.
        inputs: target -> predictions and targets, each [num_rows].
        intervals: target -> lower and upper ends [num_rows, 2] and targets; an interval that
            misses its target has another colour. None without intervals.
    """
    units = {column.name: column.unit for column in columns}
    figure, subplots = _subplots(inputs, 3.2)
    for axes, name in subplots:
        predicted, target = inputs[name]
        ends = [float(target.min()), float(target.max())]
        axes.plot(ends, ends, color=GREY, linewidth=1)
        if intervals is not None:
            _draw_intervals(axes, *intervals[name])
        shown = _spread(len(target))
        points = target[shown].numpy(), predicted[shown].numpy()
        axes.scatter(*points, s=9, color=BLUE, alpha=0.5, linewidths=0)
        if len(shown) < len(target):
            axes.set_title(f"{len(shown):,} of {len(target):,} records", loc="right", fontsize=7)
        axes.set_xlabel(f"measured ({units[name]})" if units[name] else "measured")
        axes.set_ylabel("predicted")
    return figure


def _draw_intervals(axes: Axes, interval: Tensor, target: Tensor) -> None:
    lower, upper = interval.unbind(1)
    holds = (lower <= target) & (target <= upper)
    shown = _spread(len(target))
    for chosen, colour, label in ((holds, BLUE, "holds it"), (~holds, ORANGE, "misses it")):
        rows = shown[chosen[shown]]
        x, low, high = (values[rows].numpy() for values in (target, lower, upper))
        label = f"interval {label}: {int(chosen.sum())}"
        axes.vlines(x, low, high, color=colour, alpha=0.25, linewidth=1, label=label)
    axes.legend(fontsize=7)


def _spread(count: int) -> Tensor:
    """The numbers of at most `MOST_POINTS` of `count` rows, evenly spread."""
    most = min(count, MOST_POINTS)
    return torch.arange(most) * count // max(most, 1)


def probability_plots(inputs: MetricInputs) -> Figure | None:
    """Histograms of the probability of class 1 for each target and true class.

    Args:
        inputs: target -> probabilities of class 1 and classes, each [num_rows].
    """
    figure, subplots = _subplots(inputs, 2.8)
    bins = torch.linspace(0, 1, 21).tolist()
    for axes, name in subplots:
        probability, target = inputs[name]
        for label, colour in ((0, BLUE), (1, ORANGE)):
            values = probability[target == label].numpy()
            axes.hist(values, bins, color=colour, alpha=0.6, label=f"class {label}")
        axes.set_xlabel("predicted probability of class 1")
        axes.legend()
    return figure


def _subplots(inputs: MetricInputs, height: float) -> tuple[Figure | None, list[tuple[Axes, str]]]:
    """A figure with titled axes for the targets that have rows; None if none has.

    Only the first of many targets are shown; the title of the figure has both numbers.
    """
    measured = [name for name, (_, target) in inputs.items() if len(target)]
    shown = measured[: _IN_A_ROW * _MOST_ROWS]
    if not shown:
        return None, []
    in_a_row = min(len(shown), _IN_A_ROW)
    num_rows = math.ceil(len(shown) / in_a_row)
    figure = Figure(figsize=(3.4 * in_a_row, height * num_rows), layout="constrained")
    if len(shown) < len(measured):
        figure.suptitle(f"{len(shown)} of {len(measured)} targets", fontsize=9)
    grid = figure.subplots(num_rows, in_a_row, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.remove()
    for axes, name in zip(grid, shown, strict=False):
        axes.set_title(ellipsis(name, 40))
    return figure, list(zip(grid, shown, strict=False))
