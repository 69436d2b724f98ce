"""Pictures of graphs with predictions in colour, as SVG.

Molecules are drawn by RDKit, coloured by what their atoms and bonds contribute; dependency trees as
words with arcs above; anything else as a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphfold.dag import TypedDAG, select
from graphfold.datasets.inspection.graph_hash import has_molecules, molecule_smiles
from graphfold.errors import ConfigError
from graphfold.files import check_output, write_text
from graphfold.inference.explain import Contributions, Explainer
from graphfold.inference.prediction import Prediction, node_words, plain_prediction
from graphfold.inference.tree_svg import Arc, Label, draw_arcs, draw_tree
from graphfold.layers import Head
from graphfold.training.run.trained import TrainedModel

#: Graph features with the text of the input; the first that exist are shown.
_TEXTS = (("text",), ("sentence_a", "sentence_b"), ("smiles",))

#: Classes whose probabilities a tooltip lists.
_LISTED = 8


@dataclass(frozen=True)
class Drawing:
    """A picture of one graph; a notebook shows it.

    Args:
        svg: an SVG element.
        text: the text of the input.
        prediction: the predictions for the whole graph.
        target: the target whose contributions colour a molecule: blue raises it, orange lowers it.
    """

    svg: str
    text: str = ""
    prediction: str = ""
    target: str | None = None

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes an SVG file.

        Raises:
            ConfigError: if no file can be written there.
        """
        check_output(Path(path))
        write_text(Path(path), self.svg + "\n")


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
            contributions = Explainer(trained, [*dict.fromkeys(targets)]).explain(dag)
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
    target: str | None = None,
) -> Drawing:
    """A picture of one graph.

    Args:
        dag: the graph as read, with its strings.
        prediction: the predictions for the graph.
        head: the head that made them.
        measured: of each row of the head, target -> the measured value.
        contributions: the contributions of its parts, which colour a molecule.
        target: the target of these contributions.
    """
    labels = _labels(dag, prediction, head, measured)
    values: dict[tuple[int, ...], float] = {}
    if contributions is not None and target is not None:
        values = dict(zip(contributions.nodes, contributions.values[target], strict=True))
    if has_molecules(dag):
        svg = _draw_molecule(dag, {} if head.level == "graph" else labels, values)
    else:
        svg = _draw_tree(dag, labels, prediction.added)
    sentences = []
    for name, predicted in prediction.targets.items():
        p = predicted.probabilities.get(predicted.value)
        sentences.append(f"{name}: {shown(predicted.value)}" + (f" ({p:.2f})" if p else ""))
    text = _text_of(dag)
    return Drawing(svg, text, " · ".join(sentences), target if contributions else None)


def shown(value: Any) -> str:
    """The text of a value in a picture; numbers have three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def class_colours(labels: Sequence[Any]) -> dict[str, str]:
    """Class -> colour: on a scale for classes that are integers, else colours far apart."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    names = [str(label) for label in labels]
    if all(name.isdecimal() for name in names):
        steps = max(len(names) - 1, 1)
        return {n: to_hex(colormaps["RdBu"](0.15 + 0.7 * k / steps)) for k, n in enumerate(names)}
    return {name: to_hex(colormaps["tab20"](k % 20)) for k, name in enumerate(names)}


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
    classes, target = head.labels(head.columns[0]), head.targets[0]
    colours = class_colours(classes) if classes else {}
    rows = zip(nodes, measured or [{}] * len(nodes), strict=True)
    values = [(n, row.get(target) if colours else None) for n, row in rows]
    values = [(node, value) for node, value in values if node not in prediction.added]
    return {
        node: _label(fact, value, colours)
        for (node, value), fact in zip(values, facts, strict=True)
    }


def _label(facts: Mapping[str, Any], measured: Any, colours: Mapping[str, str]) -> Label:
    value, probabilities = facts["prediction"], facts.get("probabilities", {})
    if isinstance(value, Mapping):  # several targets
        return Label(" ".join(map(shown, value.values())))
    text = shown(value)
    likely = sorted(probabilities.items(), key=lambda item: -item[1])[:_LISTED]
    tooltip = "\n".join(f"{label}: {p:.3f}" for label, p in likely)
    is_wrong = measured is not None and str(measured) != text
    colour = colours.get(text, Label("").colour)
    return Label(f"{text} ≠ {measured}" if is_wrong else text, colour, tooltip, is_wrong)


def _draw_molecule(
    dag: TypedDAG, labels: Mapping[int, Label], values: Mapping[tuple[int, ...], float]
) -> str:
    """A molecule; the span of a node is its atom in the SMILES."""
    from graphfold.datasets.molecules.drawing import draw_molecule

    places, ptr, index = dag.span[:, 0].tolist(), dag.input_ptr.tolist(), dag.input_index.tolist()
    ends = [index[ptr[node] : ptr[node + 1]] for node in range(dag.num_nodes)]
    notes = {
        tuple(places[atom] for atom in ends[node] or [node]): label.text
        for node, label in labels.items()
    }
    coloured = {tuple(places[atom] for atom in atoms): v for atoms, v in values.items()}
    num_atoms = len(dag.nodes_of_type("atom"))
    (smiles,) = molecule_smiles(dag)
    return draw_molecule(smiles, num_atoms, notes, coloured)


def _draw_tree(dag: TypedDAG, labels: Mapping[int, Label], added: Set[int]) -> str:
    """A tree or a dependency tree, without the nodes that reading added."""
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    relations: list[str | None] = [None] * len(index)
    if ("inputs", "deprel") in dag.dictionaries:
        relations = dag.strings("inputs", "deprel")
    edges: dict[int, list[tuple[int, str]]] = {}
    for node in dag.depth.argsort(stable=True).tolist():
        edges[node] = []
        for slot in range(ptr[node], ptr[node + 1]):
            if index[slot] in added:
                edges[node] += edges[index[slot]]
            elif index[slot] >= 0:
                edges[node].append((index[slot], relations[slot] or ""))
    edges = {node: pairs for node, pairs in edges.items() if node not in added}
    texts = _texts(dag)
    if all(any(c.name == "form" for c in item.features) for item in dag.schema.types):
        arcs = [Arc(head, *pair) for head, pairs in edges.items() for pair in pairs]
        return draw_arcs(sorted(edges), arcs, texts, labels)
    inputs = {node: [other for other, _ in pairs] for node, pairs in edges.items()}
    return draw_tree(inputs, texts, labels)


def _texts(dag: TypedDAG) -> dict[int, str]:
    """Node -> its first string; where no type has strings, its type."""
    texts: dict[int, str | None] = {}
    for item in dag.schema.types:
        space = f"type:{item.name}"
        strings = [c.name for c in item.features if (space, c.name) in dag.dictionaries]
        if strings:
            nodes = dag.nodes_of_type(item.name).tolist()
            texts |= dict(zip(nodes, dag.strings(space, strings[0]), strict=True))
    if not texts:
        texts = {n: dag.schema.types[code].name for n, code in enumerate(dag.op_type.tolist())}
    return {node: text for node, text in texts.items() if text is not None}


def _text_of(dag: TypedDAG) -> str:
    """The text of the input of one graph: a feature of the graph, or its words."""
    for names in _TEXTS:
        if ("graph", names[0]) in dag.dictionaries:
            texts = [dag.strings("graph", name)[0] for name in names]
            if all(texts):
                return "\n".join(text or "" for text in texts)
    return " ".join(word for word in node_words(dag) if word is not None)
