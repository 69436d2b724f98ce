"""Pictures of graphs with predictions in colour, as SVG.

Molecules are drawn by RDKit, coloured by the contributions of their atoms; dependency trees as
words with arcs above; all other graphs as trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from graphfold.dag import TypedDAG, select
from graphfold.datasets.inspection.graph_hash import has_molecules, molecule_smiles
from graphfold.errors import ConfigError
from graphfold.inference.explain import Contributions, Explainer
from graphfold.inference.prediction import Prediction, node_words, plain_prediction
from graphfold.inference.tree_svg import Label, Node, draw_arcs, draw_tree, short_text
from graphfold.layers import Head
from graphfold.training.run.trained import TrainedModel


@dataclass(frozen=True)
class Drawing:
    """A picture of one graph; a notebook shows it.

    Args:
        svg: an SVG element.
        text: the SMILES, or the words.
        target: the target whose contributions colour a molecule: blue raises it, orange lowers it.
    """

    svg: str
    text: str
    target: str | None = None

    def _repr_svg_(self) -> str:
        return self.svg


def draw_graphs(
    trained: TrainedModel,
    dag: TypedDAG,
    predictions: Sequence[Prediction],
    targets: Sequence[str] | None = None,
    has_targets: bool = False,
) -> Iterator[Drawing | None]:
    """The picture of each graph; None without a prediction.

    Args:
        trained: the model.
        dag: the graphs as the adapter reads them.
        predictions: those for each graph.
        targets: [num_graphs] the target of each graph whose contributions colour a molecule; None
            for the first.
        has_targets: whether the graphs have measured values, which are drawn where they differ.

    Raises:
        ConfigError: if the system lacks what RDKit draws with.
    """
    head = trained.head
    targets = targets or [head.targets[0]] * dag.num_graphs
    contributions: Sequence[Contributions | None] = [None] * dag.num_graphs
    if has_molecules(dag) and head.level == "graph":
        with suppress(ConfigError):  # some models cannot be explained
            contributions = list(Explainer(trained, [*dict.fromkeys(targets)]).explain(dag))
    for graph, prediction in enumerate(predictions):
        if prediction.reason:
            yield None
            continue
        one = select(dag, [graph])
        measured = head.measured_values(head.target_rows(one)) if has_targets else []
        yield draw_graph(one, prediction, head, measured, contributions[graph], targets[graph])


def draw_graph(
    dag: TypedDAG,
    prediction: Prediction,
    head: Head,
    measured: Sequence[Mapping[str, Any]] = (),
    contributions: Contributions | None = None,
    target: str = "",
) -> Drawing:
    """A picture of one graph.

    Args:
        dag: the graph as read, with its strings.
        prediction: the predictions for the graph.
        head: the head that made them.
        measured: of each row of the head, target -> the measured value.
        contributions: the contributions of its nodes; those of atoms colour a molecule.
        target: the target of these contributions.
    """
    labels = _labels(dag, prediction, head, measured)
    if not has_molecules(dag):
        return Drawing(_draw_tree(dag, labels), " ".join(filter(None, node_words(dag))))
    text = dag.strings("graph", "smiles")[0] or ""
    if contributions is None:
        return Drawing(_draw_molecule(dag, {} if head.level == "graph" else labels), text)
    return Drawing(_draw_molecule(dag, {}, contributions.values[target]["atom"]), text, target)


def shown(value: Any) -> str:
    """The text of a value in a picture; numbers have three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def class_colours(labels: Sequence[Any]) -> dict[str, str]:
    """Class -> light colour: from red over white to blue for integers, else of all hues."""
    names, last = [str(label) for label in labels], max(len(labels) - 1, 1)
    if all(name.isdecimal() for name in names):
        scale = [2 * k / last - 1 for k in range(len(names))]
        colours = [hls_to_rgb(0.6 * (x > 0), 1 - 0.35 * abs(x), 0.8) for x in scale]
    else:
        colours = [hls_to_rgb(k / len(names), 0.8, 0.7) for k in range(len(names))]
    codes = ["#" + bytes(round(255 * c) for c in colour).hex() for colour in colours]
    return dict(zip(names, codes, strict=True))


def _labels(
    dag: TypedDAG, prediction: Prediction, head: Head, measured: Sequence[Mapping[str, Any]]
) -> dict[int, Label]:
    """Node -> label; a prediction for the whole graph is the label of its only root."""
    nodes = list(range(dag.num_nodes)) if head.level == "node" else dag.output_index.tolist()
    facts = prediction.nodes
    if facts is None:
        if len(nodes) != 1:
            return {}
        facts = [plain_prediction(prediction.targets)]
    target, colours = head.targets[0], class_colours(head.labels(head.columns[0]))
    rows = zip(nodes, measured or [{}] * len(nodes), strict=True)
    predicted = [(node, row.get(target)) for node, row in rows if node not in prediction.added]
    return {
        node: _label(fact["prediction"], value, colours)
        for (node, value), fact in zip(predicted, facts, strict=True)
    }


def _label(value: Any, measured: Any, colours: Mapping[str, str]) -> Label:
    if isinstance(value, Mapping):  # several targets
        return Label(" ".join(map(shown, value.values())))
    text = shown(value)
    if text not in colours:
        return Label(text)
    is_wrong = measured is not None and str(measured) != text
    return Label(short_text(f"{text} ≠ {measured}" if is_wrong else text), colours[text], is_wrong)


def _draw_molecule(
    dag: TypedDAG, labels: Mapping[int, Label], contributions: Sequence[float] | None = None
) -> str:
    """A molecule with labels, or coloured; the span of a node is its atom in the SMILES."""
    from graphfold.datasets.molecules.drawing import draw_molecule

    atoms, places = dag.nodes_of_type("atom").tolist(), dag.span[:, 0].tolist()
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    notes = {}
    for node, label in labels.items():
        ends = index[ptr[node] : ptr[node + 1]] or [node]
        notes[tuple(places[atom] for atom in ends)] = label.text
    values = zip(atoms, contributions, strict=True) if contributions is not None else ()
    (smiles,) = molecule_smiles(dag)
    return draw_molecule(smiles, len(atoms), notes, {places[atom]: v for atom, v in values})


def _draw_tree(dag: TypedDAG, labels: Mapping[int, Label]) -> str:
    """A dependency tree, if all nodes are words, or another tree."""
    texts, relations = node_words(dag), dict[int, str | None]()
    if not any(texts):
        texts = [dag.schema.types[code].name for code in dag.op_type.tolist()]
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    if ("inputs", "deprel") in dag.dictionaries:
        relations = dict(zip(index, dag.strings("inputs", "deprel"), strict=True))
    nodes = {}
    for node in dag.depth.argsort(stable=True).tolist():
        inputs = [other for other in index[ptr[node] : ptr[node + 1]] if other >= 0]
        text, relation = short_text(texts[node] or ""), short_text(relations.get(node) or "")
        nodes[node] = Node(inputs, text, relation, labels.get(node))
    if all(any(c.name == "form" for c in item.features) for item in dag.schema.types):
        return draw_arcs([nodes[word] for word in range(dag.num_nodes)])
    return draw_tree(nodes)
