"""Drawings of single predictions: a pill in the colour of the class."""

from __future__ import annotations

from graphfold.inference.drawing.colours import ink_on
from graphfold.inference.drawing.marks import Mark
from graphfold.inference.drawing.svg import INK, cut, group, pill, text, text_width

#: Heights of a pill and of the small one with what was wanted, in pixels.
HEIGHT, _SMALL = 20, 14


def mark_width(mark: Mark) -> float:
    """The width of a drawn prediction, with room on both sides if it is wrong."""
    return _width(mark.text) + (2 * _small_width(mark) if mark.wanted is not None else 0)


def draw_mark(x: float, y: float, mark: Mark) -> str:
    """A prediction around the point (x, y); a wrong one has a frame, the right one beside it."""
    width, elements = _width(mark.text), []
    if mark.wanted is not None:
        small = _small_width(mark)
        centre = x + width / 2 + small / 2 - 4
        elements.append(pill(centre, y - 6, small + 6, _SMALL, mark.wanted_colour))
        ink = ink_on(mark.wanted_colour)
        elements.append(text(centre + 3, y - 2.5, cut(mark.wanted), 10, ink))
    frame = "" if mark.wanted is None else INK
    elements.append(pill(x, y, width, HEIGHT, mark.colour, frame))
    elements.append(text(x, y + 4.2, cut(mark.text), 12, ink_on(mark.colour)))
    return group(elements, mark.title)


def _width(label: str) -> float:
    return max(HEIGHT, text_width(cut(label)) + 12)


def _small_width(mark: Mark) -> float:
    return max(_SMALL, text_width(cut(mark.wanted or ""), 10) + 8)
