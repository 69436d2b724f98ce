"""Drawings of trees: the root above, words in a row below, a prediction in every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphfold.inference.drawing.drawn_graph import DrawnGraph
from graphfold.inference.drawing.marks import HEIGHT, Mark, draw_mark, mark_width
from graphfold.inference.drawing.svg import GREY, INK, LINE, Box, cut, group, text, text_width

#: Pixels between rows, beside nodes, of a line of text, and of a node of which nothing is known.
_BETWEEN, _GAP, _LINE_HEIGHT, _DOT = 22, 12, 17, 3


def draw_tree(graph: DrawnGraph, marks: Mapping[int, Mark]) -> Box:
    """One tree, or graph.

    Every subtree has a strip of its own, so that in a tree nothing overlaps. Where the words are
    leaves with predictions, they stand in a row under the tree.
    """
    nodes = range(len(graph.inputs))
    labels = [None if label is None else cut(label) for label in graph.texts]
    in_row = _words_below(graph, marks)
    own = [None if in_row else label for label in labels]  # what stands at the node itself
    heights = [_node_height(own[node], marks.get(node)) for node in nodes]
    widths = [_node_width(labels[node], marks.get(node)) for node in nodes]
    order, children, row = _walk(graph)
    x = _columns(order, children, widths)
    tops = _tops(row, heights)
    lines = [
        _line(x[node], tops[row[node]] + heights[node], x[other], tops[row[other]])
        for node in nodes
        for other in graph.inputs[node]
    ]
    ends = [tops[row[node]] + heights[node] for node in nodes]
    bottom = max(ends, default=0.0)
    drawn = [_node(x[n], tops[row[n]], own[n], marks.get(n), graph.is_word[n]) for n in nodes]
    if in_row:
        words = ((x[n], ends[n], label) for n, label in enumerate(labels) if label is not None)
        drawn += _word_row(words, bottom)
        bottom += _LINE_HEIGHT + 4
    width = max((x[node] + widths[node] / 2 for node in nodes), default=0.0)
    edges = f'<g stroke="{LINE}" stroke-width="1.5" stroke-linecap="round">{"".join(lines)}</g>'
    return Box(width, bottom, (edges, *drawn))


def _words_below(graph: DrawnGraph, marks: Mapping[int, Mark]) -> bool:
    named = [node for node, label in enumerate(graph.texts) if label is not None]
    return all(graph.is_word[n] and n in marks and not graph.inputs[n] for n in named)


def _walk(graph: DrawnGraph) -> tuple[list[int], list[list[int]], list[int]]:
    """Nodes with parents first, the children that each one places, and the row of each."""
    count = len(graph.inputs)
    row = [0] * count
    for node in sorted(range(count), key=graph.depth.__getitem__, reverse=True):
        for other in graph.inputs[node]:
            row[other] = max(row[other], row[node] + 1)
    read = {other for below in graph.inputs for other in below}
    order = [node for node in range(count) if node not in read]
    seen = set(order)
    children: list[list[int]] = [[] for _ in range(count)]
    for node in order:  # grows on the way
        for other in graph.inputs[node]:
            if other not in seen:  # a node that several read is placed once
                seen.add(other)
                children[node].append(other)
                order.append(other)
    return order, children, row


def _columns(
    order: Sequence[int], children: Sequence[Sequence[int]], widths: Sequence[float]
) -> list[float]:
    """The middle of each node, which is that of its strip."""
    strip = list(widths)
    for node in reversed(order):
        strip[node] = max(widths[node], sum(strip[child] for child in children[node]))
    placed = {child for below in children for child in below}
    left, x, end = [0.0] * len(widths), [0.0] * len(widths), 0.0
    for node in order:
        if node not in placed:  # a root
            left[node], end = end, end + strip[node]
        x[node] = left[node] + strip[node] / 2
        start = x[node] - sum(strip[child] for child in children[node]) / 2
        for child in children[node]:
            left[child], start = start, start + strip[child]
    return x


def _tops(row: Sequence[int], heights: Sequence[float]) -> list[float]:
    """The upper end of each row."""
    tallest = [0.0] * (max(row, default=0) + 1)
    for number, height in zip(row, heights, strict=True):
        tallest[number] = max(tallest[number], height)
    tops, top = [], 0.0
    for height in tallest:
        tops.append(top)
        top += height + _BETWEEN
    return tops


def _node_width(label: str | None, mark: Mark | None) -> float:
    width = 0.0 if label is None else text_width(label, 14)
    return max(width, 0.0 if mark is None else mark_width(mark)) + _GAP


def _node_height(label: str | None, mark: Mark | None) -> float:
    height = (HEIGHT if mark else 0) + (_LINE_HEIGHT if label is not None else 0)
    return float(height or 2 * _DOT)


def _node(x: float, top: float, label: str | None, mark: Mark | None, is_word: bool) -> str:
    elements = []
    if mark is not None:
        elements.append(draw_mark(x, top + HEIGHT / 2, mark))
        top += HEIGHT
    if label is not None:
        elements.append(text(x, top + 13, label, 14 if is_word else 13, INK if is_word else GREY))
    if not elements:
        elements.append(f'<circle cx="{x:.1f}" cy="{top + _DOT:.1f}" r="{_DOT}" fill="{LINE}"/>')
    return elements[0] if len(elements) == 1 else group(elements)


def _word_row(words: Iterable[tuple[float, float, str]], bottom: float) -> list[str]:
    """Words under the tree, with a dotted line from the node of each, which ends at some height."""
    drawn = []
    for x, end, label in words:
        if end < bottom:
            drawn.append(
                f'<path d="M{x:.1f} {end + 3:.1f}V{bottom:.1f}" stroke="{GREY}" '
                'stroke-opacity="0.5" stroke-dasharray="1.5 3"/>'
            )
        drawn.append(text(x, bottom + 15, label, 14))
    return drawn


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1 + 1:.1f}" x2="{x2:.1f}" y2="{y2 - 1:.1f}"/>'
