"""Marks: the predictions for the nodes of one graph as pills in the colours of their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.inference.drawing.svg import (
    INK,
    UNKNOWN,
    class_colours,
    cut,
    group,
    ink_on,
    pill,
    text,
    text_width,
)
from graphfold.inference.prediction import Prediction, plain_prediction
from graphfold.layers import Head
from graphfold.layers.heads.head import TargetPrediction

#: Classes whose probabilities a tooltip lists.
_LISTED = 8


@dataclass(frozen=True)
class Mark:
    """A prediction as it is drawn.

    Args:
        text: the class or the number.
        colour: of its class.
        title: the probabilities, for the tooltip.
        wanted: the measured value, where it differs.
        wanted_colour: of that class.
    """

    text: str
    colour: str = UNKNOWN
    title: str = ""
    wanted: str | None = None
    wanted_colour: str = UNKNOWN


def colours_of(head: Head) -> dict[str, str]:
    """Class -> colour, of the first target; empty if it has no classes."""
    labels = head.labels(head.columns[0])
    return class_colours(labels) if labels else {}


def node_marks(
    dag: TypedDAG,
    prediction: Prediction,
    level: str,
    colours: Mapping[str, str],
    wanted: Sequence[str | None] | None = None,
) -> dict[int, Mark]:
    """Node -> mark; of a prediction for the whole graph, that of its one root.

    Args:
        dag: one graph as read.
        prediction: what was predicted of it.
        level: what the head predicts, "graph", "node" or "output".
        colours: as from `colours_of`.
        wanted: the measured value of each row of the head, None where unknown.
    """
    if prediction.reason:
        return {}
    nodes = range(dag.num_nodes) if level == "node" else dag.output_index.tolist()
    told = prediction.nodes
    if told is None:
        if len(nodes) != 1:
            return {}
        told = [plain_prediction(prediction.targets)]
    pairs = zip(nodes, wanted or [None] * len(nodes), strict=True)
    shown_nodes = [pair for pair in pairs if pair[0] not in prediction.added]
    return {
        node: _mark(facts, colours, value)
        for (node, value), facts in zip(shown_nodes, told, strict=True)
    }


def shown(value: Any) -> str:
    """A value as it is drawn: a number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def told_of_graph(targets: Mapping[str, TargetPrediction]) -> str:
    """The predictions for a whole graph, in a line."""
    parts = []
    for name, told in targets.items():
        sure = told.probabilities.get(told.value)
        parts.append(f"{name}: {shown(told.value)}" + (f" ({sure:.2f})" if sure else ""))
    return " · ".join(parts)


def _mark(facts: Mapping[str, Any], colours: Mapping[str, str], wanted: str | None) -> Mark:
    value, probabilities = facts["prediction"], facts.get("probabilities", {})
    if isinstance(value, Mapping):  # several targets
        text = " ".join(shown(v) for v in value.values())
        first = shown(next(iter(value.values())))
        return Mark(text, colours.get(first, UNKNOWN))
    text = shown(value)
    likely = sorted(probabilities.items(), key=lambda item: -item[1])[:_LISTED]
    title = "\n".join(f"{label}: {p:.3f}" for label, p in likely)
    missed = wanted if probabilities and wanted != text else None  # a number is never quite right
    colour = colours.get(text, UNKNOWN)
    return Mark(text, colour, title, missed, colours.get(missed or "", UNKNOWN))


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
