"""The picture of a comparison: one interval for each model, coloured by what it says."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from graphfold.files import write_bytes
from graphfold.layers.heads.plots import BLUE, GREY, ORANGE
from graphfold.studies.compare.verdicts import BEST, WORSE


class Bar(NamedTuple):
    """One model in the picture."""

    label: str
    centre: float
    lower: float
    upper: float
    verdict: str


def draw_comparison(bars: Sequence[Bar], axis: str, title: str, path: Path) -> None:
    """Writes the picture.

    Args:
        bars: the models, the best first.
        axis: what the horizontal axis shows.
        title: above the picture.
        path: an .svg, .png or .pdf file.
    """
    colours = {BEST: BLUE, WORSE: ORANGE}
    figure = Figure(figsize=(7.0, 1.3 + 0.42 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for place, bar in enumerate(bars):
        colour = colours.get(bar.verdict, GREY)
        axes.plot([bar.lower, bar.upper], [place, place], color=colour, linewidth=2)
        axes.plot([bar.centre], [place], color=colour, marker="o")
    for edge in (bars[0].lower, bars[0].upper):
        axes.axvline(edge, color=BLUE, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlabel(axis)
    axes.set_title(title, fontsize=10, loc="left")
    buffer = io.BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(buffer, format=path.suffix[1:], dpi=150, metadata=metadata)
    write_bytes(path, buffer.getvalue())
