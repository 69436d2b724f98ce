"""Trees and dependency trees as SVG: the layout of nodes, arcs, words and labels."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from graphfold.errors import ellipsis

INK, LINE = "#1a202c", "#94a3b8"

#: Pixels around a drawing, between neighbours, of a label, of a line of text, between rows.
_MARGIN, _GAP, _PILL, _TEXT, _BETWEEN = 8, 14, 20, 17, 22

#: The most characters of a text.
_MOST_CHARACTERS = 40

#: Characters that XML forbids, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Label(NamedTuple):
    """The label of a node: its prediction.

    Args:
        text: the class or the number.
        colour: of the label, as #rrggbb.
        tooltip: the text that is shown while the mouse is over it.
        is_wrong: whether it has a frame.
    """

    text: str
    colour: str = "#e2e8f0"
    tooltip: str = ""
    is_wrong: bool = False


class Arc(NamedTuple):
    """A relation between two words."""

    head: int
    dependent: int
    relation: str


def draw_tree(
    inputs: Mapping[int, Sequence[int]], texts: Mapping[int, str], labels: Mapping[int, Label]
) -> str:
    """A tree, or another graph, with leaves in a row at the bottom.

    Every subtree has its own strip of the width, so that in a tree nothing overlaps.

    Args:
        inputs: node -> its inputs, in order; nodes come after their inputs.
        texts: node -> its word or name, if any.
        labels: node -> its prediction, if any.
    """
    depth: dict[int, int] = {}
    for node, below in inputs.items():
        depth[node] = max((depth[other] + 1 for other in below), default=0)
    forms = {node: _Form(texts.get(node), labels.get(node)) for node in inputs}
    row = max((forms[node].height for node in inputs if inputs[node]), default=0) + _BETWEEN
    x = _columns(inputs, {node: form.width for node, form in forms.items()})
    lowest = max(depth.values())
    y = {node: (lowest - depth[node]) * row for node in inputs}
    end = {node: y[node] + forms[node].height for node in inputs}
    lines = "".join(
        f"M{x[node]:.1f} {end[node]}V{y[node] + row - 8}H{x[other]:.1f}V{y[other] - 2}"
        for node, below in inputs.items()
        for other in below
    )
    drawn = [f'<path d="{lines}" fill="none" stroke="{LINE}"/>']
    drawn += [_node(x[node], y[node], form) for node, form in forms.items()]
    width = max(x[node] + form.width / 2 for node, form in forms.items())
    return _document(drawn, width, max(end.values()))


def _columns(inputs: Mapping[int, Sequence[int]], widths: Mapping[int, float]) -> dict[int, float]:
    """The middle of each node, in the middle of the strip of its subtree."""
    top_down = list(inputs)[::-1]
    children: dict[int, list[int]] = {}
    placed: set[int] = set()
    for node in top_down:
        children[node] = [n for n in dict.fromkeys(inputs[node]) if n not in placed]
        placed.update(children[node])  # a node that several read is placed once
    strip: dict[int, float] = {}
    for node in inputs:
        strip[node] = max(widths[node], sum(strip[child] for child in children[node]))
    begin, x, end = dict[int, float](), dict[int, float](), 0.0
    for root in sorted(inputs.keys() - placed):
        begin[root], end = end, end + strip[root]
    for node in top_down:
        x[node] = begin[node] + strip[node] / 2
        start = x[node] - sum(strip[child] for child in children[node]) / 2
        for child in children[node]:
            begin[child], start = start, start + strip[child]
    return x


def draw_arcs(
    words: Sequence[int], arcs: Sequence[Arc], texts: Mapping[int, str], labels: Mapping[int, Label]
) -> str:
    """Words in a row with arcs above them; a new row begins where no arc goes on.

    Args:
        words: the words in order.
        arcs: the relations between them.
        texts: word -> its form.
        labels: word -> its prediction, which stands below it.
    """
    place = {word: number for number, word in enumerate(words)}
    arcs = [Arc(place[arc.head], place[arc.dependent], arc.relation) for arc in arcs]
    over = _levels(arcs, len(words))[1]
    cuts = [0, *(gap + 1 for gap in range(len(words) - 1) if not over[gap]), len(words)]
    drawn, width, bottom = list[str](), 0.0, 0.0
    for first, last in pairwise(cuts):
        row_arcs = [
            Arc(arc.head - first, arc.dependent - first, arc.relation)
            for arc in arcs
            if first <= arc.head < last
        ]
        forms = [_Form(texts.get(word), labels.get(word)) for word in words[first:last]]
        elements, row_width, height = _row_of_words(forms, row_arcs)
        drawn.append(f'<g transform="translate(0 {bottom:.0f})">{"".join(elements)}</g>')
        width, bottom = max(width, row_width), bottom + height + _BETWEEN
    return _document(drawn, width, bottom - _BETWEEN)


def _row_of_words(forms: Sequence[_Form], arcs: Sequence[Arc]) -> tuple[list[str], float, float]:
    """The elements of a row of words with their arcs, its width and its height."""
    levels, _ = _levels(arcs, len(forms))
    base = (max(levels, default=0) + 1) * _BETWEEN
    x: list[float] = []
    for number, form in enumerate(forms):
        place = form.width / 2
        if x:
            place += x[-1] + forms[number - 1].width / 2
        for arc in arcs:  # with room for the relations between the words
            if number == max(arc[:2]):
                place = max(place, x[min(arc[:2])] + _text_width(arc.relation, 11) + 24)
        x.append(place)
    heads = {arc.dependent for arc in arcs}
    drawn = [_arrow(f"M{x[k]:.1f} 12", x[k], base) for k in range(len(x)) if k not in heads]
    drawn += [
        _arc(arc, x, base, base - level * _BETWEEN) for arc, level in zip(arcs, levels, strict=True)
    ]
    for place, (text, label) in zip(x, forms, strict=True):
        drawn.append(_text(place, base + 14, text or ""))
        drawn += [_label(place, base + _TEXT + 3, label)] if label else []
    has_labels = any(form.label for form in forms)
    return drawn, x[-1] + forms[-1].width / 2, base + _TEXT + (_PILL + 3) * has_labels


def _levels(arcs: Sequence[Arc], num_words: int) -> tuple[list[int], list[int]]:
    """The level of each arc, above all shorter ones that it overlaps; the levels of each gap."""
    over, levels = [0] * num_words, [0] * len(arcs)
    spans = [sorted(arc[:2]) for arc in arcs]
    for number in sorted(range(len(arcs)), key=lambda k: spans[k][1] - spans[k][0]):
        first, last = spans[number]
        levels[number] = max(over[first:last]) + 1
        over[first:last] = [levels[number]] * (last - first)
    return levels, over


def _arc(arc: Arc, x: Sequence[float], base: float, top: float) -> str:
    """From beside the middle of the head to the middle of the dependent."""
    start = x[arc.head] + (5 if arc.dependent > arc.head else -5)
    end = x[arc.dependent]
    relation = _text((start + end) / 2, top - 3, arc.relation, 11)
    return _arrow(f"M{start:.1f} {base}V{top}H{end:.1f}", end, base) + relation


def _arrow(path: str, x: float, base: float) -> str:
    return (
        f'<path d="{path}V{base - 4}" fill="none" stroke="{LINE}"/>'
        f'<path d="M{x - 3.5:.1f} {base - 6}h7l-3.5 6z" fill="{LINE}"/>'
    )


class _Form(NamedTuple):
    """A node: its text and its label, if it has them."""

    text: str | None
    label: Label | None

    @property
    def height(self) -> int:
        return _PILL * (self.label is not None) + _TEXT * (self.text is not None) or 6

    @property
    def width(self) -> float:
        text = 0.0 if self.text is None else _text_width(self.text)
        return max(text, 0.0 if self.label is None else _label_width(self.label)) + _GAP


def _node(x: float, y: float, form: _Form) -> str:
    """A label above a text; a dot for a node with neither."""
    text, label = form
    if text is None and label is None:
        return f'<circle cx="{x:.1f}" cy="{y + 3}" r="3" fill="{LINE}"/>'
    drawn = "" if label is None else _label(x, y, label)
    return drawn if text is None else drawn + _text(x, y + (_PILL if label else 0) + 13, text)


def _label(x: float, y: float, label: Label) -> str:
    width = _label_width(label)
    red, green, blue = (int(label.colour[i : i + 2], 16) for i in (1, 3, 5))
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    frame = f'stroke="{INK}" stroke-width="2"' if label.is_wrong else ""
    return (
        f"<g><title>{_escaped(label.tooltip)}</title>"
        f'<rect x="{x - width / 2:.1f}" y="{y}" width="{width:.1f}" height="{_PILL}" '
        f'rx="{_PILL / 2}" fill="{label.colour}" {frame}/>'
        f"{_text(x, y + 14, label.text, 12, INK if is_light else '#ffffff')}</g>"
    )


def _text(x: float, y: float, text: str, size: int = 14, colour: str = INK) -> str:
    """One line around x with its baseline at y."""
    place = f'x="{x:.1f}" y="{y}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{_escaped(_cut(text))}</text>"


def _label_width(label: Label) -> float:
    return max(_PILL, _text_width(label.text, 12) + 14)


def _text_width(text: str, size: int = 14) -> float:
    """An estimate for a sans-serif font, in pixels."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in _cut(text))
    return size * (0.6 * len(_cut(text)) + 0.5 * wide)


def _cut(text: str) -> str:
    return ellipsis(" ".join(text.split()), _MOST_CHARACTERS)


def _escaped(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _document(elements: Sequence[str], width: float, height: float) -> str:
    """The SVG element, in its natural size on white."""
    width, height = width + 2 * _MARGIN, height + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tree" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-_MARGIN} {-_MARGIN} {width:.0f} {height:.0f}" '
        'font-family="system-ui, \'DejaVu Sans\', sans-serif" text-anchor="middle">'
        f'<rect x="-{_MARGIN}" y="-{_MARGIN}" width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(elements)}</svg>"
    )
