"""Pieces of SVG, and the width of text in them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

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
