"""Drawing: a picture of one graph with predictions in colour, for a notebook or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphfold.dag import TypedDAG
from graphfold.datasets.inspection.graph_hash import has_molecules, molecule_smiles
from graphfold.datasets.molecules.table_columns import BOND_ENDS
from graphfold.files import check_output, write_text
from graphfold.inference.drawing.arc_drawing import draw_arcs
from graphfold.inference.drawing.drawn_graph import DrawnGraph, drawn_graph, without_nodes
from graphfold.inference.drawing.marks import Mark, colours_of, node_marks, told_of_graph
from graphfold.inference.drawing.svg import Box, document, stack
from graphfold.inference.drawing.tree_drawing import draw_tree
from graphfold.inference.prediction import Prediction, node_words
from graphfold.layers import Head

#: The target of a word that says what it is to its head, which is drawn on the arc.
RELATION = "deprel"

#: Graph features that hold the input as people read it, the first that there is.
_TEXTS = (("text",), ("sentence_a", "sentence_b"), ("smiles",))


@dataclass(frozen=True)
class Drawing:
    """A picture of one graph; a notebook shows it.

    Args:
        svg: an SVG element.
        text: the input as people read it.
        told: what is predicted of the whole graph.
    """

    svg: str
    text: str = ""
    told: str = ""

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes an SVG file.

        Raises:
            ConfigError: if no file can be written there.
        """
        check_output(Path(path))
        write_text(Path(path), self.svg + "\n")


def draw_graph(
    dag: TypedDAG,
    prediction: Prediction,
    head: Head,
    wanted: Sequence[str | None] | None = None,
) -> Drawing:
    """A picture of one graph: a molecule, dependency trees as arcs, anything else as a tree.

    Args:
        dag: one graph as read, with its strings.
        prediction: what was predicted of it.
        head: what predicted it.
        wanted: the measured value of each row of the head as text, None where unknown; it is drawn
            where it differs.

    Raises:
        RecordError: if RDKit cannot draw a molecule.
    """
    told = told_of_graph(prediction.targets)
    colours = colours_of(head)
    marks = node_marks(dag, prediction, head.level, colours, wanted)
    if has_molecules(dag):
        return Drawing(_draw_molecule(dag, marks), text_of(dag), told)
    on_arcs = head.targets == (RELATION,)
    graph = drawn_graph(dag)
    if prediction.added:
        graph, marks = without_nodes(graph, marks, prediction.added)
    return Drawing(document(_draw(graph, marks, on_arcs)), text_of(dag), told)


def text_of(dag: TypedDAG) -> str:
    """The input of one graph as people read it: its text, or its words."""
    for names in _TEXTS:
        if ("graph", names[0]) in dag.dictionaries:
            texts = [dag.strings("graph", name)[0] for name in names]
            if all(texts):
                return "\n".join(text or "" for text in texts)
    return " ".join(word for word in node_words(dag) if word is not None)


def _draw_molecule(dag: TypedDAG, marks: dict[int, Mark]) -> str:
    """A molecule, with what is predicted of its atoms or bonds beside them."""
    from graphfold.datasets.molecules.drawing import draw_molecule

    types = [dag.schema.types[number].name for number in dag.op_type.tolist()]
    places = dag.span[:, 0].tolist()
    notes: dict[tuple[int, ...], str] = {}
    for node, mark in marks.items():
        if types[node] == "atom":
            notes[(places[node],)] = mark.text
        elif types[node] == BOND_ENDS.name:
            atoms = dag.input_index[dag.input_ptr[node] :][:2].tolist()
            notes[tuple(places[atom] for atom in atoms)] = mark.text
    (smiles,) = molecule_smiles(dag)
    return draw_molecule(smiles, notes, types.count("atom"))


def _draw(graph: DrawnGraph, marks: dict[int, Mark], on_arcs: bool) -> Box:
    if graph.is_dependency:
        return stack(draw_arcs(graph, part, marks, on_arcs) for part in graph.parts())
    return draw_tree(graph, marks)
