"""Prediction: what a model says of one record, in the words of its targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.layers import Head
from graphfold.layers.heads.target_prediction import ClassNames, TargetPrediction
from graphfold.training.prediction.node_texts import node_texts

#: Classes whose probabilities are told of each node; of more classes, the likeliest.
MOST_CLASSES = 50

_NOT_FINITE = "the model computes no finite number for this record"


@dataclass(frozen=True)
class Prediction:
    """The predictions for one record.

    Args:
        line: the 1-based line of the record.
        reason: why there is no prediction; empty if there is one.
        targets: what is said of each target, of the whole graph or of its root.
        nodes: of every node, where nodes are predicted: type, span, text, prediction, its
            probability, and the probabilities of all classes (of the likeliest `MOST_CLASSES`).
        rows: the same as `targets`, of each of these nodes.
    """

    line: int
    reason: str = ""
    targets: Mapping[str, TargetPrediction] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] | None = None
    rows: Sequence[Mapping[str, TargetPrediction]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values; with one target its name is left out."""
        result = {"line": self.line, "prediction": _unwrap(_values(self.targets))}
        named = {
            target: {str(label): p for label, p in told.probabilities.items()}
            for target, told in self.targets.items()
        }
        if any(named.values()):
            result["probabilities"] = _unwrap(named)
        result |= _extra(self.targets)
        if self.nodes is not None:
            result["nodes"] = list(self.nodes)
        return {**result, "reason": self.reason}


def describe(dag: TypedDAG, head: Head, decoded: Tensor, names: ClassNames) -> Iterator[Prediction]:
    """One prediction for each graph.

    Args:
        dag: the graphs as read, with their strings.
        head: what predicted.
        decoded: what `head.decode` gave, on the CPU.
        names: the names of classes.
    """
    rows = head.predictions(decoded, names)
    lines = dag.origin[:, 1].tolist()
    is_finite = head.values(decoded).flatten(1).isfinite().all(1)
    failed = set(head.row_graph(dag)[~is_finite].tolist())
    if head.level == "graph":
        for graph, (line, row) in enumerate(zip(lines, rows, strict=True)):
            yield Prediction(line, _NOT_FINITE) if graph in failed else Prediction(line, "", row)
        return
    nodes = torch.arange(dag.num_nodes) if head.level == "node" else dag.output_index
    ptr = (dag.node_ptr if head.level == "node" else dag.output_ptr).tolist()
    facts = list(node_facts(dag))
    position = {node: row for row, node in enumerate(nodes.tolist())}
    outputs, output_ptr = dag.output_index.tolist(), dag.output_ptr.tolist()
    for graph, line in enumerate(lines):
        if graph in failed:
            yield Prediction(line, _NOT_FINITE)
            continue
        mine = range(ptr[graph], ptr[graph + 1])
        listed = [{**facts[int(nodes[row])], **plain_prediction(rows[row])} for row in mine]
        roots = outputs[output_ptr[graph] : output_ptr[graph + 1]]
        root = rows[position[roots[0]]] if len(roots) == 1 else {}
        yield Prediction(line, "", root, listed, [rows[row] for row in mine])


def node_facts(dag: TypedDAG) -> Iterator[dict[str, Any]]:
    """Type, span and text of every node, in node order; no text where there are no words."""
    types = [node_type.name for node_type in dag.schema.types]
    columns = zip(dag.op_type.tolist(), dag.span.tolist(), node_texts(dag), strict=True)
    for op_type, span, text in columns:
        facts: dict[str, Any] = {"type": types[op_type], "span": span if span[0] >= 0 else None}
        yield facts if text is None else facts | {"text": text}


def plain_prediction(targets: Mapping[str, TargetPrediction]) -> dict[str, Any]:
    """The prediction of one row as plain values, with the probabilities of its classes."""
    classes = {name: told for name, told in targets.items() if told.probabilities}
    facts = {"prediction": _unwrap(_values(targets))}
    if classes:
        sure = {name: told.probabilities[told.value] for name, told in classes.items()}
        facts["probability"] = _unwrap(sure)
        named = {name: _likeliest(told.probabilities) for name, told in classes.items()}
        facts["probabilities"] = _unwrap(named)
    return facts | _extra(targets)


def _likeliest(probabilities: Mapping[Any, float]) -> dict[str, float]:
    """The probabilities in the order of the classes, or of many classes by size."""
    items = list(probabilities.items())
    if len(items) > MOST_CLASSES:
        items = nlargest(MOST_CLASSES, items, key=lambda item: item[1])
    return {str(label): p for label, p in items}


def _values(targets: Mapping[str, TargetPrediction]) -> dict[str, Any]:
    return {name: told.value for name, told in targets.items()}


def _extra(targets: Mapping[str, TargetPrediction]) -> dict[str, Any]:
    """Further numbers by name, and under the name by target."""
    names = dict.fromkeys(name for told in targets.values() for name in told.extra)
    return {n: _unwrap({t: told.extra[n] for t, told in targets.items()}) for n in names}


def _unwrap(by_target: Mapping[str, Any]) -> Any:
    """The one value; a dict if there are several; None if there is none."""
    if len(by_target) > 1:
        return dict(by_target)
    return next(iter(by_target.values()), None)
