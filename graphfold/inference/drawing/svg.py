"""Pieces of SVG, the width of text in them, and the colours of classes.

Ordered classes have colours of a scale, others colours that can be told apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
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


#: Characters that XML cannot hold, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
INK, GREY, LINE = "#1a202c", "#4a5568", "#cbd5e0"

#: Around a drawing, in pixels.
MARGIN = 8

#: The most that is shown of a word or a label.
_MOST_CHARACTERS = 40


@dataclass(frozen=True)
class Box:
    """Elements that fill a rectangle from the point (0, 0) on.

    Args:
        width: in pixels.
        height: in pixels.
        elements: SVG elements.
    """

    width: float
    height: float
    elements: tuple[str, ...]


def escaped(text: str) -> str:
    """Text as XML may hold it; what it cannot hold becomes U+FFFD."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def cut(text: str) -> str:
    """Text of a label, on one line and not too long."""
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def text_width(text: str, size: float = 12) -> float:
    """An estimate of the width of text in pixels, for a sans-serif font."""
    return size * sum(map(_relative_width, text))


def _relative_width(sign: str) -> float:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cf", "Mn"):
        return 0.0
    if unicodedata.east_asian_width(sign) in ("W", "F") or ord(sign) > 0xFFFF:
        return 1.15
    if sign in "iljtfrI.,:;'|!()[] ":
        return 0.36
    return 0.86 if sign in "mwMW@%…" else 0.68 if sign.isupper() else 0.59


def text(x: float, y: float, content: str, size: float = 12, fill: str = INK) -> str:
    """One line of text around x with its baseline at y."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"'
    return f'<text {place} fill="{fill}">{escaped(content)}</text>'


def pill(x: float, y: float, width: float, height: float, fill: str, stroke: str = "") -> str:
    """A rectangle with round ends around the point (x, y)."""
    line = f'stroke="{stroke}" stroke-width="2"'
    if not stroke:
        line = 'stroke="#000000" stroke-opacity="0.14"'
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
        f'height="{height:g}" rx="{height / 2:g}" fill="{fill}" {line}/>'
    )


def group(elements: Iterable[str], title: str = "") -> str:
    """Elements that belong together; the title is shown when the mouse is over them."""
    tip = f"<title>{escaped(title)}</title>" if title else ""
    return f"<g>{tip}{''.join(elements)}</g>"


def moved(box: Box, x: float, y: float) -> str:
    """The elements of a box, moved to the point (x, y)."""
    return f'<g transform="translate({x:.1f} {y:.1f})">{"".join(box.elements)}</g>'


def stack(boxes: Iterable[Box], gap: float = 18) -> Box:
    """Boxes under each other, in one box."""
    elements: list[str] = []
    width = bottom = 0.0
    for box in boxes:
        bottom += gap if elements else 0
        elements.append(moved(box, 0, bottom))
        bottom += box.height
        width = max(width, box.width)
    return Box(width, bottom, tuple(elements))


def document(box: Box) -> str:
    """A whole SVG element, in its natural size on white."""
    width, height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tree" viewBox="0 0 {width:.0f} '
        f'{height:.0f}" width="{width:.0f}" height="{height:.0f}" font-family="{FONT}" '
        'text-anchor="middle">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{moved(box, MARGIN, MARGIN)}</svg>'
    )
