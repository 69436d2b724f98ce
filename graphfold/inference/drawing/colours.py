"""Colours of classes: a scale where classes are ordered, else colours that can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: From the first of some ordered classes over the middle to the last one.
_SCALE = ("#d6453d", "#f4a58a", "#f1f1ee", "#8fc3de", "#2f7fb8")

#: Pastel colours for classes without order; dark text can be read on each.
_PALETTE = (
    "#a6cee3", "#fdbf6f", "#b2df8a", "#fbb4ae", "#cab2d6", "#ffee99", "#99d8c9", "#e5b8a0",
    "#c6dbef", "#f7b6d2", "#d9d9a0", "#c7c7c7", "#9edae5", "#e7cba9", "#c5e8b7", "#d4b9da",
    "#ffd6a5", "#a8c5f0", "#f2c9c9", "#bfd8bd",
)  # fmt: skip

#: Where nothing is known of the class.
UNKNOWN = "#e2e8f0"


def class_colours(labels: Sequence[Any]) -> dict[str, str]:
    """Label -> colour; classes that are integers have an order, those with names have none."""
    names = [str(label) for label in labels]
    if all(isinstance(label, int) for label in labels) or all(n.isdecimal() for n in names):
        steps = max(len(names) - 1, 1)
        return {name: _on_scale(number / steps) for number, name in enumerate(names)}
    return {name: _PALETTE[number % len(_PALETTE)] for number, name in enumerate(names)}


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = _channels(colour)
    return "#1a202c" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _on_scale(share: float) -> str:
    """The colour at a place between 0 and 1 of the scale."""
    place = share * (len(_SCALE) - 1)
    below = min(int(place), len(_SCALE) - 2)
    rest = place - below
    ends = zip(_channels(_SCALE[below]), _channels(_SCALE[below + 1]), strict=True)
    return "#" + "".join(f"{round(a + rest * (b - a)):02x}" for a, b in ends)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
