"""Trees and dependency trees as SVG: the places of nodes, lines, arcs, words and labels.

`templates/tree.svg` has the shapes and the colours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from graphfold.errors import ellipsis
from graphfold.pages import page_template

#: Pixels: the height of a label and of a line of text, between rows, between neighbours.
_LABEL, _TEXT, _BETWEEN, _GAP = 20, 17, 22, 14

#: The most characters of a text.
_MOST_CHARACTERS = 40

#: Characters that XML forbids, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Label(NamedTuple):
    """The label of a node: its prediction.

    Args:
        text: the class or the number, see `short_text`.
        colour: of the label, as #rrggbb; light enough for dark letters.
        is_wrong: whether it has a frame.
    """

    text: str
    colour: str = "#e2e8f0"
    is_wrong: bool = False

    @property
    def width(self) -> int:
        """The width in pixels."""
        return max(_LABEL, _text_width(self.text) + 10)


class Node(NamedTuple):
    """A node of a drawing.

    Args:
        inputs: the numbers of its inputs.
        text: its word or name, see `short_text`; empty for none.
        relation: the name of its relation to the node that reads it; empty for none.
        label: its prediction; None for none.
    """

    inputs: Sequence[int]
    text: str = ""
    relation: str = ""
    label: Label | None = None

    @property
    def width(self) -> int:
        """The width of its texts with the gap to a neighbour, in pixels."""
        texts = max(_text_width(self.text), _text_width(self.relation))
        return max(texts, self.label.width if self.label else 0) + _GAP

    @property
    def height(self) -> int:
        """The height of the label and of the text below it, in pixels."""
        return _LABEL * (self.label is not None) + _TEXT * bool(self.text)


def short_text(text: str) -> str:
    """A text on one line that XML can hold, cut if it is long."""
    return _FORBIDDEN.sub("\ufffd", ellipsis(" ".join(text.split()), _MOST_CHARACTERS))


def draw_tree(nodes: dict[int, Node]) -> str:
    """A tree with leaves in a row at the bottom.

    Every subtree has its own strip of the width, so nothing overlaps. A node that several nodes
    read is drawn once, below the first of them.

    Args:
        nodes: number -> node; nodes come after their inputs.
    """
    depth: dict[int, int] = {}
    for number, node in nodes.items():
        depth[number] = max((depth[child] + 1 for child in node.inputs), default=0)
    row = max((node.height for node in nodes.values() if node.inputs), default=0) + _BETWEEN
    lowest = max(depth.values())
    x, width = _columns(nodes)
    y = {number: (lowest - depth[number]) * row for number in nodes}
    end = {number: y[number] + node.height for number, node in nodes.items()}
    lines = [
        f"M{x[number]} {end[number]}V{y[number] + row - 8}H{x[child]}V{y[child]}"
        for number, node in nodes.items()
        for child in node.inputs
    ]
    labels = [(x[n], y[n], node.label) for n, node in nodes.items() if node.label]
    texts = [(x[n], end[n] - 4, node.text) for n, node in nodes.items()]
    return _svg(width, max(end.values()), lines=lines, labels=labels, texts=texts)


def _columns(nodes: dict[int, Node]) -> tuple[dict[int, float], int]:
    """The middle of the strip of each node, and the width of all strips."""
    strip, children, placed = dict[int, int](), dict[int, list[int]](), set[int]()
    for number, node in nodes.items():
        children[number] = [child for child in node.inputs if child not in placed]
        placed.update(children[number])
        strip[number] = max(node.width, sum(strip[child] for child in children[number]))
    begin, width = dict[int, float](), 0
    for number in reversed(nodes):
        if number not in placed:  # no node reads it
            begin[number], width = width, width + strip[number]
        below = sum(strip[child] for child in children[number])
        start = begin[number] + (strip[number] - below) / 2
        for child in children[number]:
            begin[child], start = start, start + strip[child]
    return {number: begin[number] + strip[number] / 2 for number in nodes}, width


def draw_arcs(words: Sequence[Node]) -> str:
    """Words in a row, their labels below, and an arc from each word to each of its inputs.

    Args:
        words: the words in order; their inputs are positions of words.
    """
    arcs = [(head, dependent) for head, word in enumerate(words) for dependent in word.inputs]
    levels = _levels(arcs, len(words))
    base, width = (max(levels, default=0) + 1) * _BETWEEN, sum(word.width for word in words)
    ends = accumulate(word.width for word in words)
    x = [end - word.width / 2 for end, word in zip(ends, words, strict=True)]
    roots = {*range(len(words))} - {dependent for _, dependent in arcs}
    lines, relations = [f"M{x[root]} 12V{base - 4}" for root in roots], []
    for (head, dependent), level in zip(arcs, levels, strict=True):
        start, top = x[head] + (5 if dependent > head else -5), base - level * _BETWEEN
        lines.append(f"M{start} {base}V{top}H{x[dependent]}V{base - 4}")
        relations.append(((start + x[dependent]) / 2, top - 3, words[dependent].relation))
    pairs = list(zip(x, words, strict=True))
    return _svg(
        width,
        base + _TEXT + 3 + _LABEL,
        lines=lines,
        arrows=[(place, base) for place in x],
        relations=relations,
        texts=[(place, base + 14, word.text) for place, word in pairs],
        labels=[(place, base + _TEXT + 3, word.label) for place, word in pairs if word.label],
    )


def _levels(arcs: Sequence[tuple[int, int]], num_words: int) -> list[int]:
    """The level of each arc: above all shorter ones that it overlaps."""
    over, levels = [0] * num_words, [0] * len(arcs)
    spans = [sorted(arc) for arc in arcs]
    for number in sorted(range(len(arcs)), key=lambda k: spans[k][1] - spans[k][0]):
        first, last = spans[number]
        levels[number] = max(over[first:last]) + 1
        over[first:last] = [levels[number]] * (last - first)
    return levels


def _text_width(text: str) -> int:
    """An estimate for a sans-serif font of 14 pixels."""
    return sum(16 if unicodedata.east_asian_width(sign) in "WF" else 8 for sign in text)


def _svg(width: float, height: float, **shapes: Sequence[Any]) -> str:
    """An SVG element, in its natural size on white."""
    return page_template("tree.svg").render(width=width, height=height, **shapes)
