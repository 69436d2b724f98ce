"""Drawings of trees and other graphs of inputs: roots above, words in a row."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from graphfold.dag import TypedDAG

_STEP_X, _STEP_Y, _MARGIN = 46, 44, 26
_RADIUS, _CHARACTER = 11, 7  # of a label, in pixels
_GOOD, _BAD, _UNKNOWN = "#d7eede", "#f8d3cf", "#e2e8f0"
_INK = {"value": "#1a202c", "word": "#4a5568", "wanted": "#c53030"}


def draw_tree(dag: TypedDAG, predicted: Sequence[str | None], wanted: Sequence[str | None]) -> str:
    """One graph as an SVG element; every node shows its prediction.

    Args:
        dag: one graph as read, with its strings.
        predicted: what is shown in each node; None for nothing.
        wanted: the target of each node, None where it is unknown; it is shown where it differs.
    """
    words = [None if word is None else _short(word) for word in _words(dag)]
    shown = list(zip(predicted, wanted, strict=True))
    missed = [w if p is not None and w != p else None for p, w in shown]
    # A node has room for its prediction and, to the right of it, for what was wanted.
    label = max((len(text) for text in [*predicted, *words] if text), default=0)
    beside = max((len(text) for text in missed if text), default=0)
    step = max(_STEP_X, _CHARACTER * (label + beside) + 14)
    x, y = _layout(dag, [word is not None for word in words], step)
    width = max(x) + _MARGIN + _CHARACTER * (label / 2 + beside)
    height = max(y) + _MARGIN + 18
    parts = [
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        'xmlns="http://www.w3.org/2000/svg" class="tree">'
        '<g stroke="#cbd5e0" stroke-width="1.4">'
    ]
    parts += [_line(x[a], y[a], x[b], y[b]) for a, b in _edges(dag)]
    parts.append('</g><g font-family="system-ui, sans-serif" font-size="12">')
    for node in range(dag.num_nodes):
        parts += _node(x[node], y[node], predicted[node], wanted[node], words[node])
    return "".join([*parts, "</g></svg>"])


def _short(word: str) -> str:
    return word if len(word) <= 9 else f"{word[:8]}…"


def _layout(dag: TypedDAG, is_word: Sequence[bool], step: float) -> tuple[list[float], list[float]]:
    """Words stand in a row in their order, other nodes over the middle of the words below them."""
    slots = is_word if any(is_word) else [d == 0 for d in dag.depth.tolist()]
    left = [_MARGIN + (place - 1) * step for place in accumulate(slots)]
    right = list(left)
    depth, inputs = dag.depth.tolist(), _inputs(dag)
    for node in sorted(range(dag.num_nodes), key=depth.__getitem__):
        if not slots[node] and inputs[node]:
            left[node] = min(left[child] for child in inputs[node])
            right[node] = max(right[child] for child in inputs[node])
    x = [(a + b) / 2 for a, b in zip(left, right, strict=True)]
    return x, [_MARGIN + (max(depth) - d) * _STEP_Y for d in depth]


def _inputs(dag: TypedDAG) -> list[list[int]]:
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    return [[i for i in index[ptr[n] : ptr[n + 1]] if i >= 0] for n in range(dag.num_nodes)]


def _edges(dag: TypedDAG) -> list[tuple[int, int]]:
    return [(node, child) for node, below in enumerate(_inputs(dag)) for child in below]


def _words(dag: TypedDAG) -> list[str | None]:
    """The form of every node that has one."""
    words: list[str | None] = [None] * dag.num_nodes
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        if (space, "form") in dag.dictionaries:
            nodes = dag.nodes_of_type(node_type.name).tolist()
            for node, word in zip(nodes, dag.strings(space, "form"), strict=True):
                words[node] = word
    return words


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _node(
    x: float, y: float, predicted: str | None, wanted: str | None, word: str | None
) -> list[str]:
    parts = []
    if predicted is None:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_UNKNOWN}"/>')
    else:
        is_wrong = wanted is not None and wanted != predicted
        colour = _UNKNOWN if wanted is None else (_BAD if is_wrong else _GOOD)
        width = max(2 * _RADIUS, _CHARACTER * len(predicted) + 8)
        parts.append(
            f'<rect x="{x - width / 2:.1f}" y="{y - _RADIUS:.1f}" width="{width}" '
            f'height="{2 * _RADIUS}" rx="{_RADIUS}" fill="{colour}"/>'
        )
        parts.append(_text(x, y + 4, predicted))
        if is_wrong:
            parts.append(_text(x + width / 2 + 3, y - 5, wanted or "", "wanted"))
    if word is not None:
        parts.append(_text(x, y + (14 if predicted is None else _RADIUS + 14), word, "word"))
    return parts


def _text(x: float, y: float, text: str, kind: str = "value") -> str:
    anchor = "start" if kind == "wanted" else "middle"
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK[kind]}"'
    return f"<text {place}>{escape(text)}</text>"
