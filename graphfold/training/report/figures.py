"""Figures of the report, as SVG elements."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from graphfold.layers import Head
from graphfold.training.prediction.prediction import ClassNames
from graphfold.training.scoring.metrics import Metrics
from graphfold.training.scoring.scoring import Rows

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#dd6b20", "#718096"

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
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
        left, right = figure.subplots(1, 2)
        _plot(left, history, "train/loss", _BLUE)
        _plot(left, history, "val/loss", _ORANGE)
        left.set_title("Loss")
        left.legend()
        if monitor != "val/loss":
            _plot(right, history, monitor, _ORANGE)
            right.set_title(monitor)
        else:
            right.set_visible(False)
        return _to_svg(figure)


def draw_predictions(head: Head, rows: Rows, names: ClassNames) -> str | None:
    """Predicted against measured values, or which class is taken for which; None of nothing."""
    with matplotlib.rc_context(_STYLE):
        if head.kind == "classification":
            return _draw_confusion(head, rows, names)
        if head.kind == "multilabel":
            return _draw_probabilities(head, rows)
        return _draw_scatter(head, rows)


def _draw_confusion(head: Head, rows: Rows, names: ClassNames) -> str | None:
    known = head.measured(rows.target)
    count = rows.prediction.shape[1]
    if not bool(known.any()) or count > 30:
        return None
    codes = rows.target[known] * count + rows.prediction[known].argmax(1)
    table = torch.bincount(codes, minlength=count * count).view(count, count).double()
    share = table / table.sum(1, keepdim=True).clamp(min=1)
    figure = Figure(figsize=(5.0, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.grid(False)
    image = axes.imshow(share.numpy(), cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the class", shrink=0.8)
    axes.set(xlabel="predicted class", ylabel="class")
    labels = [str(name) for name in names.get(head.targets[0], range(count))]
    if count <= 20:
        axes.set_xticks(range(count), labels, rotation=90 if max(map(len, labels)) > 2 else 0)
        axes.set_yticks(range(count), labels)
    if count <= 12:
        for (row, column), value in np.ndenumerate(share.numpy()):
            colour = "white" if value > 0.5 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, size=7)
    return _to_svg(figure)


def _draw_scatter(head: Head, rows: Rows) -> str | None:
    shown = [index for index in range(len(head.targets)) if _measured(head, rows, index).any()][:4]
    if not shown:
        return None
    figure = Figure(figsize=(3.4 * len(shown), 3.2), layout="constrained")
    for axes, index in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        known = _measured(head, rows, index)
        target, predicted = rows.target[known, index], rows.prediction[known, index]
        ends = [float(target.min()), float(target.max())]
        axes.plot(ends, ends, color=_GREY, linewidth=1)
        axes.scatter(target.numpy(), predicted.numpy(), s=9, color=_BLUE, alpha=0.5, linewidths=0)
        unit = head.columns[index].unit
        axes.set_title(_short(head.targets[index]))
        axes.set_xlabel(f"measured ({unit})" if unit else "measured")
        axes.set_ylabel("predicted")
    return _to_svg(figure)


def _draw_probabilities(head: Head, rows: Rows) -> str | None:
    """How the probabilities of the two classes are distributed."""
    shown = [index for index in range(len(head.targets)) if _measured(head, rows, index).any()][:4]
    if not shown:
        return None
    figure = Figure(figsize=(3.4 * len(shown), 2.8), layout="constrained")
    for axes, index in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        known = _measured(head, rows, index)
        is_one = rows.target[known, index] > 0.5
        probability = rows.prediction[known, index]
        bins = torch.linspace(0, 1, 21).tolist()
        for label, colour in ((~is_one, _BLUE), (is_one, _ORANGE)):
            name = "class 1" if label is is_one else "class 0"
            axes.hist(probability[label].numpy(), bins, color=colour, alpha=0.6, label=name)
        axes.set_title(_short(head.targets[index]))
        axes.set_xlabel("predicted probability of class 1")
        axes.legend()
    return _to_svg(figure)


def _measured(head: Head, rows: Rows, index: int) -> Tensor:
    return head.measured(rows.target)[:, index]


def _plot(axes: Axes, history: Sequence[Metrics], name: str, colour: str) -> None:
    points = [(row["epoch"], row[name]) for row in history if row.get(name) is not None]
    epochs, values = [x for x, _ in points], [y for _, y in points]
    axes.plot(epochs, values, color=colour, marker="o", markersize=3, label=name)  # type: ignore[arg-type]
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlim(0.5, len(history) + 0.5)


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _to_svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
