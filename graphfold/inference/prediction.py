"""Prediction: the predicted values of one record, with the names of targets, classes and nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from typing import Any

from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter
from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.errors import ConfigError, ellipsis
from graphfold.layers import Head
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.output_column import (
    OutputColumn,
    TargetPrediction,
    by_target,
    read_columns,
)

#: The most classes with a probability in the JSON of a node: the likeliest ones.
MOST_CLASSES = 50

_NOT_FINITE = "the model computes no finite number for this record"


@dataclass(frozen=True)
class Prediction:
    """The predictions for one record.

    Args:
        line: the 1-based line of the record.
        reason: the reason for the lack of a prediction; empty if there is one.
        targets: target -> its prediction for the whole graph, or for its only output node.
        nodes: if nodes are predicted, the facts of every node of the record: type, span, text,
            prediction, its probability, and the probabilities of all classes (of the likeliest
            `MOST_CLASSES`); None for predictions of whole graphs.
        rows: the cells of the output columns, once for the graph or for each of these nodes.
        added: the numbers of the nodes that reading added, which `nodes` lacks.
    """

    line: int
    reason: str = ""
    targets: Mapping[str, TargetPrediction] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] | None = None
    rows: Sequence[Sequence[Any]] = ()
    added: Set[int] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; with one target its name is left out."""
        targets = self.targets
        result = {
            "line": self.line,
            "prediction": unwrapped({name: t.value for name, t in targets.items()}),
        }
        named = {
            name: {str(label): p for label, p in t.probabilities.items()}
            for name, t in targets.items()
        }
        if any(named.values()):
            result["probabilities"] = unwrapped(named)
        for part in dict.fromkeys(part for t in targets.values() for part in t.extra):
            result[part] = unwrapped({name: t.extra[part] for name, t in targets.items()})
        if self.nodes is not None:
            result["nodes"] = list(self.nodes)
        return {**result, "reason": self.reason}

    def cells(self, count: int) -> list[Any]:
        """The cells of a table; each is a list of the values of all nodes if these are predicted.

        Args:
            count: the number of columns; all cells are None without a prediction.
        """
        if self.reason:
            return [None] * count
        if self.nodes is None:
            return list(self.rows[0])
        return [list(values) for values in zip(*self.rows, strict=True)] or [[]] * count


def describe(
    dag: TypedDAG,
    head: Head,
    predicted: Predicted,
    added: Tensor | None = None,
    columns: Sequence[OutputColumn] | None = None,
) -> Iterator[Prediction]:
    """One prediction for each graph.

    Args:
        dag: the graphs as read, with their strings.
        head: the head of the model.
        predicted: its predictions, on the CPU.
        added: [num_nodes] bool, see `Adapter.added_nodes`; None without added nodes.
        columns: the output columns; None for those of the head.
    """
    columns = head.output_columns() if columns is None else columns
    lines, failed = dag.origin[:, 1].tolist(), _failed(dag, head, predicted)
    rows, sort = list(zip(*read_columns(columns, predicted), strict=True)), by_target(columns)
    added_in = {} if added is None else _numbers_within_graphs(dag, added)
    if head.level == "graph":
        for graph, (line, row) in enumerate(zip(lines, rows, strict=True)):
            if graph in failed:
                yield Prediction(line, _NOT_FINITE)
                continue
            left_out = added_in.get(graph, frozenset())
            yield Prediction(line, "", sort(row), None, [row], left_out)
        return
    outputs, output_ptr = dag.output_index.tolist(), dag.output_ptr.tolist()
    node_ptr, all_facts = dag.node_ptr.tolist(), node_facts(dag)
    is_of_nodes = head.level == "node"
    all_nodes: Sequence[int] = range(dag.num_nodes) if is_of_nodes else outputs
    ptr = node_ptr if is_of_nodes else output_ptr
    for graph, line in enumerate(lines):
        first, own = node_ptr[graph], slice(ptr[graph], ptr[graph + 1])
        # Facts of one graph at a time: those of a batch would keep Python's collector busy.
        facts = list(islice(all_facts, node_ptr[graph + 1] - first))
        if graph in failed:
            yield Prediction(line, _NOT_FINITE)
            continue
        row_of = dict(zip(all_nodes[own], rows[own], strict=True))
        targets_of = {node: sort(row) for node, row in row_of.items()}
        roots = outputs[output_ptr[graph] : output_ptr[graph + 1]]
        root = targets_of[roots[0]] if len(roots) == 1 else {}
        left_out = added_in.get(graph, frozenset())
        shown = [node for node in row_of if node - first not in left_out]
        listed = [facts[node - first] | plain_prediction(targets_of[node]) for node in shown]
        yield Prediction(line, "", root, listed, [row_of[node] for node in shown], left_out)


def _numbers_within_graphs(dag: TypedDAG, nodes: Tensor) -> dict[int, frozenset[int]]:
    """Graph -> the numbers, within the graph, of its chosen nodes; no graph without any."""
    chosen = nodes.nonzero().view(-1)
    graphs = dag.batch[chosen]
    numbers: dict[int, set[int]] = {}
    pairs = zip(graphs.tolist(), (chosen - dag.node_ptr[graphs]).tolist(), strict=True)
    for graph, number in pairs:
        numbers.setdefault(graph, set()).add(number)
    return {graph: frozenset(members) for graph, members in numbers.items()}


def _failed(dag: TypedDAG, head: Head, predicted: Predicted) -> set[int]:
    """The graphs with a predicted number that is not finite."""
    is_finite = predicted.value.isfinite()
    if is_finite.all():
        return set()
    return set(head.row_graph(dag)[~is_finite.flatten(1).all(1)].tolist())


def node_facts(dag: TypedDAG) -> Iterator[dict[str, Any]]:
    """Type, span and text of every node, in node order; no text without words."""
    types = [node_type.name for node_type in dag.schema.types]
    begins, ends = dag.span.t().tolist() if dag.num_nodes else ([], [])
    columns = zip(dag.op_type.tolist(), begins, ends, node_texts(dag), strict=True)
    for op_type, begin, end, text in columns:
        span = [begin, end] if begin >= 0 else None
        facts: dict[str, Any] = {"type": types[op_type], "span": span}
        if text is not None:
            facts["text"] = text
        yield facts


def plain_prediction(targets: Mapping[str, TargetPrediction]) -> dict[str, Any]:
    """The prediction of one row as plain values, with the probabilities of its classes."""
    if len(targets) == 1:
        (only,) = targets.values()
        return _plain(only)
    facts_of = {name: _plain(target) for name, target in targets.items()}
    keys = dict.fromkeys(["prediction", *(key for facts in facts_of.values() for key in facts)])
    return {
        key: unwrapped({name: facts[key] for name, facts in facts_of.items() if key in facts})
        for key in keys
    }


def _plain(target: TargetPrediction) -> dict[str, Any]:
    """The facts of one target as plain values."""
    facts: dict[str, Any] = {"prediction": target.value}
    if target.probabilities:
        facts["probability"] = target.probabilities[target.value]
        facts["probabilities"] = _likeliest(target.probabilities)
    return facts | target.extra


def _likeliest(probabilities: Mapping[Any, float]) -> dict[str, float]:
    """The probabilities in the order of the classes, or of many classes by size."""
    if len(probabilities) <= MOST_CLASSES:
        return {str(label): p for label, p in probabilities.items()}
    items = nlargest(MOST_CLASSES, probabilities.items(), key=lambda item: item[1])
    return {str(label): p for label, p in items}


def unwrapped(by_target: Mapping[str, Any]) -> Any:
    """The value of a single target, a dict of several, or None of no target."""
    if len(by_target) > 1:
        return dict(by_target)
    return next(iter(by_target.values()), None)


#: The most characters of the text of a phrase.
MOST_CHARACTERS = 200


def node_words(dag: TypedDAG) -> list[str | None]:
    """The form of every node that has one, in node order."""
    words: list[str | None] = [None] * dag.num_nodes
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        if (space, "form") in dag.dictionaries:
            nodes = dag.nodes_of_type(node_type.name).tolist()
            for node, word in zip(nodes, dag.strings(space, "form"), strict=True):
                words[node] = word
    return words


def node_texts(dag: TypedDAG) -> list[str | None]:
    """The text of every node: its form, or the texts of its inputs; None without words.

    A phrase of more than `MOST_CHARACTERS` is cut, so that long chains take linear time.
    """
    texts = node_words(dag)
    if not any(texts):
        return texts
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    texts.append(None)  # the text of an absent input, -1
    for node in dag.depth.argsort(stable=True).tolist():
        if texts[node] is None:
            below = [texts[i] for i in index[ptr[node] : ptr[node + 1]]]
            phrase = " ".join(text for text in below if text)
            texts[node] = ellipsis(phrase, MOST_CHARACTERS) or None
    return texts[:-1]


def check_format(name: str, adapter: Adapter, head: Head) -> None:
    """Raises ConfigError if a model's predictions cannot be written in a text format.

    Args:
        name: the format, "brackets" or "conllu".
        adapter: the adapter of the model's records.
        head: the head of the model.
    """
    if adapter.text_format != name:
        read = adapter.text_format or f"what {type(adapter).__name__} reads"
        raise ConfigError(
            f"--format {name} gives back records that are {name}, but the run reads {read}."
            + (f" Write --format {read}, or leave it out." if adapter.text_format else "")
            + ("" if adapter.text_format else " Leave it out.")
        )
    strange = [target for target in head.targets if target not in adapter.written_targets]
    if head.level == "graph" or strange:
        raise ConfigError(
            f"--format {name} has no place for {', '.join(strange or head.targets)} of each "
            f"{head.level}. Leave it out: JSON lines hold every prediction."
        )


def written_nodes(prediction: Prediction, head: Head) -> PredictedNodes:
    """The values that `Adapter.write_back` writes into a record."""
    targets, nodes = head.targets, prediction.nodes or ()
    predicted = [node["prediction"] for node in nodes]
    values = {t: [v[t] if len(targets) > 1 else v for v in predicted] for t in targets}
    return PredictedNodes(prediction.reason, [node["span"] for node in nodes], values)
