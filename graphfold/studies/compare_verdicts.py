"""Verdicts of a comparison, in words, a table and a picture: which model is best, and which ones
cannot be told from it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from graphfold.files import write_bytes
from graphfold.layers.heads.plots import BLUE, GREY, ORANGE
from graphfold.studies.compare_statistics import LEVEL, Comparison

BEST, SAME, WORSE = "best", "not distinguishable", "worse"


@dataclass(frozen=True, eq=False)
class Verdicts:
    """A comparison with the names of the models and of the metric.

    Args:
        labels: the names of the models.
        metric: as metrics.json names it.
        is_less_better: its direction.
        repetitions: how many runs each model has.
        found: what was computed.
    """

    labels: Sequence[str]
    metric: str
    is_less_better: bool
    repetitions: int
    found: Comparison

    @property
    def order(self) -> list[int]:
        """The models, the best first."""
        sign = 1 if self.is_less_better else -1
        return [int(model) for model in np.argsort(sign * self.found.means, kind="stable")]

    def of(self, model: int) -> str:
        """The verdict on one model."""
        best = self.order[0]
        if model == best:
            return BEST
        return WORSE if self.found.pair(best, model).p < 1 - LEVEL else SAME

    def table(self) -> str:
        """A line for each model, beside the best one."""
        head = ["model", "runs", "mean", "deviation", "difference", "95 % interval", "adjusted p"]
        lines = [[*head, ""], *(self._line(model) for model in self.order)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                f"{cell:<{width}}" if place in (0, 7) else f"{cell:>{width}}"
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def sentence(self) -> str:
        """The result in words."""
        best = self.order[0]
        parts = [f"{self.labels[best]} has the best {self.metric} ({self.found.means[best]:.4g})"]
        for verdict, is_one, are in (
            (SAME, "cannot be told from it", "cannot be told from it"),
            (WORSE, "is worse", "are worse"),
        ):
            names = [self.labels[model] for model in self.order if self.of(model) == verdict]
            if names:
                parts.append(f"{' and '.join(names)} {is_one if len(names) == 1 else are}")
        return f"{'; '.join(parts)} (level {1 - LEVEL:.2g}, {self._test()})."

    def facts(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        anova, half = self.found.anova, self.found.half_width
        return {
            "metric": self.metric,
            "less_is_better": self.is_less_better,
            "method": self.found.method,
            "repetitions": self.repetitions,
            "best": self.labels[self.order[0]],
            "not_distinguishable": [self.labels[m] for m in self.order if self.of(m) == SAME],
            "anova": anova and {"f": anova.statistic, "degrees": list(anova.degrees), "p": anova.p},
            "models": [
                {
                    "model": self.labels[m],
                    "mean": float(self.found.means[m]),
                    "deviation": float(self.found.deviations[m]),
                    "half_width": half,
                    "verdict": self.of(m),
                }
                for m in self.order
            ],
            "pairs": [
                {
                    "first": self.labels[pair.first],
                    "second": self.labels[pair.second],
                    "difference": pair.difference,
                    "lower": pair.lower,
                    "upper": pair.upper,
                    "p": pair.p,
                }
                for pair in self.found.pairs
            ],
            "sentence": self.sentence(),
        }

    def _line(self, model: int) -> list[str]:
        own = [self.labels[model], str(self.repetitions)]
        own += [f"{self.found.means[model]:.4g}", f"{self.found.deviations[model]:.3g}"]
        if model == self.order[0]:
            return [*own, "", "", "", BEST]
        pair = self.found.pair(self.order[0], model)
        interval = f"{pair.lower:+.3g} to {pair.upper:+.3g}"
        return [*own, f"{pair.difference:+.3g}", interval, _p(pair.p), self.of(model)]

    def _test(self) -> str:
        anova = self.found.anova
        if anova is None:
            return self.found.method
        one, two = anova.degrees
        numbers = f"F({one}, {two}) = {anova.statistic:.3g}, p {_p(anova.p, '= ')}"
        return f"{self.found.method}; {numbers}"


def _p(value: float, equals: str = "") -> str:
    return "< 0.0001" if value < 1e-4 else f"{equals}{value:.3g}"


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
