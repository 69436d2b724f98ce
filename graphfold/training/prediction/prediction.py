"""Prediction: what a model says of one record, in the words of its targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.layers import Head

#: target -> the names of its classes, where they have names.
ClassNames = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Prediction:
    """What a model says of one record.

    Args:
        line: the 1-based line of the record.
        reason: why there is no prediction; empty if there is one.
        values: target -> class or number, of the whole graph or of its root.
        probabilities: target -> class -> probability, where classes are predicted.
        nodes: of every node, where nodes are predicted: type, span, text, prediction, probability.
    """

    line: int
    reason: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    probabilities: Mapping[str, Mapping[Any, float]] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; with one target its name is left out."""
        result: dict[str, Any] = {"line": self.line, "prediction": _unwrap(self.values)}
        if self.probabilities:
            named = {t: {str(c): p for c, p in of.items()} for t, of in self.probabilities.items()}
            result["probabilities"] = _unwrap(named)
        if self.nodes is not None:
            result["nodes"] = list(self.nodes)
        return {**result, "reason": self.reason}


def describe(
    dag: TypedDAG, head: Head, decoded: Mapping[str, Tensor], names: ClassNames
) -> Iterator[Prediction]:
    """One prediction for each graph.

    Args:
        dag: the graphs as read, with their strings.
        head: what predicted.
        decoded: what `head.decode` gave, on the CPU.
        names: the names of classes.
    """
    rows = _Rows(head, decoded, names)
    lines = dag.origin[:, 1].tolist()
    if head.level == "graph":
        yield from (Prediction(line, "", *rows.at(row)) for row, line in enumerate(lines))
        return
    nodes = torch.arange(dag.num_nodes) if head.level == "node" else dag.output_index
    ptr = (dag.node_ptr if head.level == "node" else dag.output_ptr).tolist()
    facts = list(_node_facts(dag))
    position = {node: row for row, node in enumerate(nodes.tolist())}
    outputs, output_ptr = dag.output_index.tolist(), dag.output_ptr.tolist()
    for graph, line in enumerate(lines):
        mine = range(ptr[graph], ptr[graph + 1])
        listed = [{**facts[int(nodes[row])], **rows.brief(row)} for row in mine]
        roots = outputs[output_ptr[graph] : output_ptr[graph + 1]]
        root = rows.at(position[roots[0]]) if len(roots) == 1 else ({}, {})
        yield Prediction(line, "", *root, listed)


class _Rows:
    """The rows of a head as plain values."""

    def __init__(self, head: Head, decoded: Mapping[str, Tensor], names: ClassNames) -> None:
        self.head = head
        self.names = names
        self.values = decoded["value"].tolist() if "value" in decoded else []
        self.probabilities = decoded["probabilities"].tolist() if "probabilities" in decoded else []

    def at(self, row: int) -> tuple[dict[str, Any], dict[str, dict[Any, float]]]:
        """The values and the probabilities of a row, by target."""
        targets = self.head.targets
        if self.values:
            return dict(zip(targets, map(_digits, self.values[row]), strict=True)), {}
        by_target = self.probabilities[row]
        if self.head.kind == "classification":
            by_target = [by_target]
        else:
            by_target = [[1 - p, p] for p in by_target]
        values, probabilities = {}, {}
        for target, of_classes in zip(targets, by_target, strict=True):
            labels = self.names.get(target, range(len(of_classes)))
            best = max(range(len(of_classes)), key=of_classes.__getitem__)
            values[target] = labels[best]
            probabilities[target] = dict(zip(labels, map(_digits, of_classes), strict=True))
        return values, probabilities

    def brief(self, row: int) -> dict[str, Any]:
        """The prediction of a node, with the probability of its class."""
        values, probabilities = self.at(row)
        facts = {"prediction": _unwrap(values)}
        if probabilities:
            facts["probability"] = _unwrap({t: probabilities[t][values[t]] for t in values})
        return facts


def _node_facts(dag: TypedDAG) -> Iterator[dict[str, Any]]:
    """Type, span and word of every node, in node order."""
    words: dict[int, str | None] = {}
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        if (space, "form") in dag.dictionaries:
            nodes = dag.nodes_of_type(node_type.name).tolist()
            words |= dict(zip(nodes, dag.strings(space, "form"), strict=True))
    types = [node_type.name for node_type in dag.schema.types]
    pairs = zip(dag.op_type.tolist(), dag.span.tolist(), strict=True)
    for node, (op_type, span) in enumerate(pairs):
        facts: dict[str, Any] = {"type": types[op_type], "span": span if span[0] >= 0 else None}
        if node in words:
            facts["text"] = words[node]
        yield facts


def _unwrap(by_target: Mapping[str, Any]) -> Any:
    """The one value; a dict if there are several; None if there is none."""
    if len(by_target) > 1:
        return dict(by_target)
    return next(iter(by_target.values()), None)


def _digits(value: float) -> float:
    """A float32 without the digits that it does not have."""
    return float(f"{value:.7g}")
