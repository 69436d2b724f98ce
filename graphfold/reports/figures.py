"""Figures of the report, as SVG elements."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from graphfold.layers import Head
from graphfold.layers.heads.eval_rows import EvalRows
from graphfold.layers.heads.plots import BLUE, GREY, ORANGE
from graphfold.training.scoring import Metrics

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#edf2f7",
    "legend.frameon": False,
}


def draw_curves(history: Sequence[Metrics], monitor: str) -> str:
    """The losses and the metric that chose the checkpoint, over epochs."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 2.7), layout="constrained")
        losses, metric = figure.subplots(1, 2)
        _plot(losses, history, "train/loss", BLUE)
        _plot(losses, history, "val/loss", ORANGE)
        losses.set_title("Loss")
        losses.legend()
        if monitor != "val/loss":
            _plot(metric, history, monitor, ORANGE)
            metric.set_title(monitor)
        else:
            metric.set_visible(False)
        return _to_svg(figure)


def draw_predictions(head: Head, rows: EvalRows) -> str | None:
    """The head's picture of predictions against targets; None if it has none."""
    with matplotlib.rc_context(_STYLE):
        figure = head.plot(rows)
        return None if figure is None else _to_svg(figure)


def _plot(axes: Axes, history: Sequence[Metrics], name: str, colour: str) -> None:
    """A line for each member of an ensemble; only the first one is in the legend."""
    label = name
    for member in dict.fromkeys(row.get("member") for row in history):
        rows = [row for row in history if row.get("member") == member and row.get(name) is not None]
        epochs, values = [row["epoch"] for row in rows], [row[name] for row in rows]
        axes.plot(epochs, values, color=colour, marker="o", markersize=3, label=label)  # type: ignore[arg-type]
        label = "_nolegend_"
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(0.5, max(row["epoch"] or 0 for row in history) + 0.5)


def _to_svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
