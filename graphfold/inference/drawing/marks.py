"""Marks: what a picture shows of the predictions for the nodes of one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphfold.dag import TypedDAG
from graphfold.inference.drawing.colours import UNKNOWN, class_colours
from graphfold.inference.prediction import Prediction, plain_prediction
from graphfold.layers import Head
from graphfold.layers.heads.target_prediction import ClassNames, TargetPrediction

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


def colours_of(head: Head, names: ClassNames) -> dict[str, str]:
    """Class -> colour, of the first target; empty if it has no classes."""
    labels = head.labels(head.columns[0], names)
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
