"""Drawings of dependency trees: words in a row, arcs from heads to dependents above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphfold.inference.drawing.drawn_graph import DrawnGraph
from graphfold.inference.drawing.marks import HEIGHT, Mark, draw_mark, mark_width
from graphfold.inference.drawing.svg import GREY, Box, cut, group, text, text_width

#: Pixels beside a word, between levels of arcs, of all levels together, and of a line of text.
_GAP, _STEP, _MOST_ARCS, _LINE_HEIGHT = 14, 24, 1200, 20

_STROKE = "#94a3b8"


class Arc(NamedTuple):
    """A relation between two words, by their positions in the row.

    Args:
        head: the position of the head; that of the word itself where it has none.
        dependent: the position of the dependent.
        label: what the input says of the relation.
        mark: what is predicted of it.
    """

    head: int
    dependent: int
    label: str
    mark: Mark | None

    @property
    def ends(self) -> tuple[int, int]:
        """The left and the right position."""
        return min(self.head, self.dependent), max(self.head, self.dependent)

    @property
    def width(self) -> float:
        """The width of what stands on the arc."""
        return text_width(self.label, 11) if self.mark is None else mark_width(self.mark)


def draw_arcs(
    graph: DrawnGraph, nodes: Sequence[int], marks: Mapping[int, Mark], on_arcs: bool
) -> Box:
    """One dependency tree.

    Args:
        graph: the graph.
        nodes: the words of the tree, in order; crossing arcs are drawn, too.
        marks: the predictions.
        on_arcs: whether these are of the relations to the heads, not of the words themselves.
    """
    labels = [cut(graph.texts[node] or "") for node in nodes]
    under = [None if on_arcs else marks.get(node) for node in nodes]
    arcs = _arcs(graph, nodes, marks if on_arcs else {})
    x = _places(labels, under, arcs)
    level = _levels(arcs, len(nodes))
    most = max(level, default=0)
    step = min(_STEP, _MOST_ARCS / max(most, 1))
    base = (most + 1) * step
    elements = [_root(arc, x[arc.dependent], base) for arc in arcs if arc.head == arc.dependent]
    by_height = sorted(zip(level, range(len(arcs)), strict=True), reverse=True)  # low ones on top
    elements += [_arc(arcs[k], x, base, step * height) for height, k in by_height if height]
    for place, label, mark in zip(x, labels, under, strict=True):
        word = text(place, base + 15, label, 14)
        drawn = [] if mark is None else [draw_mark(place, base + _LINE_HEIGHT + 13, mark)]
        elements.append(group([word, *drawn]))
    width = max(p + _width(label, m) / 2 for p, label, m in zip(x, labels, under, strict=True))
    height = base + _LINE_HEIGHT + (HEIGHT + 6 if any(under) else 0)
    return Box(width, height, tuple(elements))


def _arcs(graph: DrawnGraph, nodes: Sequence[int], marks: Mapping[int, Mark]) -> list[Arc]:
    """The arc of each word in order, also of a root."""
    position = {node: number for number, node in enumerate(nodes)}
    heads = {
        other: (node, relation)
        for node in nodes
        for other, relation in zip(graph.inputs[node], graph.relations[node], strict=True)
    }
    arcs = []
    for node in nodes:
        head, relation = heads.get(node, (node, "root"))
        arcs.append(Arc(position[head], position[node], cut(relation or ""), marks.get(node)))
    return arcs


def _width(label: str, mark: Mark | None) -> float:
    return max(text_width(label, 14), 0.0 if mark is None else mark_width(mark)) + _GAP


def _places(
    labels: Sequence[str], marks: Sequence[Mark | None], arcs: Sequence[Arc]
) -> list[float]:
    """The middle of each word, so far from the others that the labels of arcs have room."""
    widths = [_width(label, mark) for label, mark in zip(labels, marks, strict=True)]
    ending: list[list[Arc]] = [[] for _ in labels]
    for arc in arcs:
        if arc.head != arc.dependent:
            ending[arc.ends[1]].append(arc)
    x: list[float] = []
    for number, width in enumerate(widths):
        place = x[-1] + (widths[number - 1] + width) / 2 if x else width / 2
        for arc in ending[number]:
            place = max(place, x[arc.ends[0]] + arc.width + 32)
        x.append(place)
    return x


def _levels(arcs: Sequence[Arc], num_words: int) -> list[int]:
    """The height of each arc: above all shorter ones that it overlaps; 0 of a root."""
    highest = np.zeros(num_words, dtype=np.int64)  # over the gap after each word
    level = [0] * len(arcs)
    for number in sorted(range(len(arcs)), key=lambda k: arcs[k].ends[1] - arcs[k].ends[0]):
        left, right = arcs[number].ends
        if left == right:
            continue
        level[number] = int(highest[left:right].max()) + 1
        highest[left:right] = level[number]
    return level


def _arc(arc: Arc, x: Sequence[float], base: float, height: float) -> str:
    """From beside the middle of the head to the middle of the dependent, with round corners."""
    sign = 1 if arc.dependent > arc.head else -1
    start, end, top = x[arc.head] + 5 * sign, x[arc.dependent], base - height
    bend = min(9.0, height / 2, abs(end - start) / 2)
    path = (
        f"M{start:.1f} {base:.1f}V{top + bend:.1f}Q{start:.1f} {top:.1f} "
        f"{start + sign * bend:.1f} {top:.1f}H{end - sign * bend:.1f}"
        f"Q{end:.1f} {top:.1f} {end:.1f} {top + bend:.1f}V{base - 4:.1f}"
    )
    drawn = [f'<path d="{path}" fill="none" stroke="{_STROKE}" stroke-width="1.3"/>']
    drawn.append(_arrow_head(end, base))
    middle, width = (start + end) / 2, arc.width + 6
    if arc.mark is not None:
        drawn.append(draw_mark(middle, top, arc.mark))
    elif arc.label:
        drawn.append(
            f'<rect x="{middle - width / 2:.1f}" y="{top - 7:.1f}" width="{width:.1f}" '
            'height="14" fill="#ffffff"/>'
        )
        drawn.append(text(middle, top + 3.7, arc.label, 11, GREY))
    return group(drawn)


def _root(arc: Arc, x: float, base: float) -> str:
    line = f'<path d="M{x:.1f} 14V{base - 4:.1f}" stroke="{_STROKE}" stroke-width="1.3"/>'
    top = text(x, 10, arc.label, 11, GREY) if arc.mark is None else draw_mark(x, 10, arc.mark)
    return group([line, _arrow_head(x, base), top])


def _arrow_head(x: float, base: float) -> str:
    return f'<path d="M{x - 3.5:.1f} {base - 6:.1f}h7l-3.5 6z" fill="{_STROKE}"/>'
