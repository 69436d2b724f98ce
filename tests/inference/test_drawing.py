"""Pictures of graphs: their elements, places and colours, for graphs of every shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem
from training.tiny_runs import write_corpora

from graphfold.dag import Column, GraphBuilder, NodeType, Schema, TypedDAG
from graphfold.datasets.adapter import Adapter, read_records
from graphfold.datasets.molecules import drawing as of_molecules
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import UPOS, ConlluAdapter
from graphfold.datasets.readers.pairs import PairsAdapter
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.inference.explain import Contributions
from graphfold.inference.pictures import Drawing, class_colours, draw_graph
from graphfold.inference.prediction import Prediction, describe
from graphfold.layers.heads.classification import ClassificationHead
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.numbers import RegressionHead
from graphfold.layers.heads.output_column import TargetPrediction
from graphfold.layers.heads.relatedness import RelatednessHead

SVG = "{http://www.w3.org/2000/svg}"
TREES = BracketsAdapter(num_classes=5).without_targets()
WORDS = ConlluAdapter()


def read_one(adapter: Adapter, item: Any) -> TypedDAG:
    """The graph of one record."""
    return read_records(adapter, Path(), [adapter.record_of(item)]).dag


def drawing_of(
    adapter: Adapter,
    text: str,
    classes: Sequence[int] | None = None,
    level: str = "node",
    measured: Sequence[dict[str, Any]] = (),
) -> Drawing:
    """A picture in which row k of the head has the class classes[k], with probability 0.9."""
    dag = read_one(adapter, text)
    head = ClassificationHead(2, dag.schema, level)
    count = {"node": dag.num_nodes, "output": len(dag.output_index), "graph": 1}[level]
    rows = torch.full((count, head.num_classes), 0.1 / (head.num_classes - 1))
    rows[torch.arange(count), torch.tensor(classes or [0] * count)] = 0.9
    (prediction,) = describe(dag, head, Predicted(rows), adapter.added_nodes(dag))
    return draw_graph(dag, prediction, head, measured)


def elements(drawing: Drawing, tag: str) -> list[ElementTree.Element]:
    """All elements of a kind, in order; the picture must be well-formed."""
    return list(ElementTree.fromstring(drawing.svg).iter(SVG + tag))


def texts(drawing: Drawing) -> list[str]:
    return [element.text or "" for element in elements(drawing, "text")]


def places(drawing: Drawing) -> dict[str, tuple[float, float]]:
    """Text -> where it stands."""
    found = elements(drawing, "text")
    return {e.text or "": (float(e.get("x", "")), float(e.get("y", ""))) for e in found}


def pills(drawing: Drawing) -> list[tuple[float, float, float, float, str]]:
    """Left, top, width, height and colour of every label."""
    return [
        (*(float(r.get(name, "nan")) for name in ("x", "y", "width", "height")), r.get("fill", ""))
        for r in elements(drawing, "rect")
        if r.get("rx")
    ]  # type: ignore[misc]


def edges(drawing: Drawing) -> int:
    """The number of lines from a node to another."""
    return len(heights(drawing))


def heights(drawing: Drawing) -> list[float]:
    """The height of the horizontal part of every line and arc."""
    paths = (path.get("d", "") for path in elements(drawing, "path"))
    matches = (re.search(r"V([-\d.]+)H", path) for path in paths)
    return [float(match[1]) for match in matches if match]


def sentence(heads: list[int], relations: list[str] | None = None) -> str:
    """CoNLL-U of words w1, w2 and so on with these heads."""
    rows = [
        f"{k}\tw{k}\t_\t_\t_\t_\t{head}\t{relations[k - 1] if relations else 'dep'}\t_\t_"
        for k, head in enumerate(heads, 1)
    ]
    return "\n".join([*rows, ""])


def chain(count: int) -> str:
    """A tree that branches to the right, of so many words."""
    return "(2 (2 w) " * (count - 1) + "(2 w)" + ")" * (count - 1)


@st.composite
def trees(draw: Any) -> str:
    """A bracketed tree of any shape, unary chains and wide phrases among them."""
    parts = [f"(1 w{k})" for k in range(draw(st.integers(1, 12)))]
    while len(parts) > 1 or draw(st.booleans()):
        count = draw(st.integers(1, min(len(parts), 5)))
        at = draw(st.integers(0, len(parts) - count))
        parts[at : at + count] = [f"(2 {' '.join(parts[at : at + count])})"]
        if len(parts) == 1 and draw(st.booleans()):
            break
    return parts[0]


def test_a_tree_has_its_words_in_a_row_and_a_coloured_class_in_every_node():
    drawing = drawing_of(TREES, "(_ (_ very) (_ (_ good) (_ film)))", [2, 4, 2, 3, 4])
    colours = class_colours(range(5))
    assert sorted(c for *_, c in pills(drawing)) == sorted(colours[c] for c in "24234")
    words = [places(drawing)[word] for word in ("very", "good", "film")]
    assert words == sorted(words)
    assert len({y for _, y in words}) == 1
    assert edges(drawing) == 4
    assert drawing.text == "very good film"
    assert drawing._repr_svg_() == drawing.svg


def test_a_wrong_class_has_a_frame_and_the_right_one_behind_it():
    measured = [{"label": 2}, {"label": 3}, {}]
    drawing = drawing_of(TREES, "(_ (_ good) (_ film))", [2, 2, 3], measured=measured)
    framed = [r for r in elements(drawing, "rect") if r.get("stroke-width") == "2"]
    assert len(framed) == 1
    assert sorted(texts(drawing)) == ["2", "2 ≠ 3", "3", "film", "good"]


def test_phrases_that_reading_added_have_no_label():
    split = BracketsAdapter(num_classes=5, binarize=True).without_targets()
    drawing = drawing_of(split, "(4 (0 a) (1 b) (2 c) (3 d))", [0, 1, 2, 3, 1, 1, 4])
    assert sorted(texts(drawing)) == ["0", "1", "2", "3", "4", "a", "b", "c", "d"]
    assert edges(drawing) == 6


@given(trees())
def test_nothing_overlaps_in_a_tree(text):
    drawing = drawing_of(TREES, text)
    for (x1, y1, w1, h1, _), (x2, y2, w2, h2, _) in combinations(pills(drawing), 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
    root = ElementTree.fromstring(drawing.svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for x, y, w, h, _ in pills(drawing):  # within the margin of 8 pixels
        assert 0 <= x <= x + w <= width - 16
        assert 0 <= y <= y + h <= height - 16


def test_ordered_classes_go_from_red_over_white_to_blue():
    five = class_colours(range(5))
    channels = [[int(five[str(k)][i : i + 2], 16) for i in (1, 3, 5)] for k in range(5)]
    assert channels[0][0] > 2 * channels[0][2]
    assert min(channels[2]) > 230
    assert channels[4][2] > 2 * channels[4][0]
    assert class_colours(["0", "1"]) == {"0": five["0"], "1": five["4"]}
    assert len(set(class_colours(UPOS).values())) == len(UPOS)


def test_a_dependency_tree_has_an_arc_for_each_relation_and_tags_under_the_words():
    codes = [UPOS.index(tag) for tag in ("PRON", "VERB", "NOUN")]
    drawing = drawing_of(WORDS, sentence([2, 0, 2], ["nsubj", "root", "obj"]), codes)
    assert {"nsubj", "obj", "PRON", "VERB", "NOUN", "w1", "w2", "w3"} == {*texts(drawing)}
    assert len(heights(drawing)) == 2
    assert places(drawing)["w1"][1] < places(drawing)["PRON"][1]


def test_a_pair_is_two_trees_in_one_row(tmp_path):
    folder = write_corpora(tmp_path) / "sick" / "parsed" / "test"
    adapter = PairsAdapter()
    dag = read_records(adapter, folder, [next(adapter.records(folder))]).dag
    prediction = Prediction(1, "", {"relatedness": TargetPrediction(3.5)})
    drawing = draw_graph(dag, prediction, RelatednessHead(2, dag.schema))
    assert edges(drawing) == 4
    assert len(drawing.text.split()) == dag.num_nodes


def test_nodes_without_words_have_their_types_and_a_shared_node_is_drawn_once():
    schema = Schema(
        (NodeType("leaf", 0), NodeType("inner", None)),
        graph_targets=(Column("name", "int64", size=2),),
    )
    graph = GraphBuilder(schema)
    shared = graph.node("leaf")
    graph.output(graph.node("inner", [graph.node("inner", [shared]) for _ in range(2)]))
    graph.finish()
    prediction = Prediction(1, "", {"name": TargetPrediction(1, {0: 0.2, 1: 0.8})})
    drawing = draw_graph(graph.build(), prediction, ClassificationHead(2, schema, "graph"))
    assert sorted(texts(drawing)) == ["1", "inner", "inner", "inner", "leaf"]
    assert edges(drawing) == 4


@pytest.mark.parametrize(
    ("adapter", "text", "words"),
    [
        (TREES, "(2 word)", 1),
        (TREES, chain(5000), 5000),
        (TREES, "(2 " * 5000 + "(2 w)" + ")" * 5000, 1),
        (TREES, f"(2 {'(2 w) ' * 40})", 40),
        (WORDS, sentence([0]), 1),
        (WORDS, sentence(list(range(1000))), 1000),
        (WORDS, sentence([0] + [1] * 999), 1000),
    ],
    ids=["word", "chain", "unary", "wide", "one", "dependencies", "star"],
)
def test_trees_of_every_shape(adapter, text, words):
    drawing = drawing_of(adapter, text)
    drawn = [t for t in texts(drawing) if t.startswith("w")]
    assert len(drawn) == words
    assert len(pills(drawing)) == read_one(adapter, text).num_nodes


def test_any_text_can_be_drawn():
    words = ["<b>", "&amp;", "שלום", "مرحبا", "👩‍🚀", "e\u0301", "\x01\ufffe", '"', "x" * 300]
    drawing = drawing_of(TREES, f"(2 {' '.join(f'(2 {word})' for word in words)})")
    shown = [text for text in texts(drawing) if text != "0"]
    assert shown == [*words[:6], "\ufffd\ufffd", '"', "x" * 39 + "…"]


# Molecules: oxygen first, then the carbon at the other end; a ring; a salt with its parts mixed up.
ORDERS = [("CCO", [2, 0, 1]), ("Oc1ccncc1", [3, 6, 0, 2, 4, 1, 5]), ("CN.Cl", [2, 0, 1])]


@pytest.mark.parametrize("hydrogens", [False, True])
@pytest.mark.parametrize(("smiles", "order"), ORDERS)
def test_contributions_colour_their_atoms_in_any_order_of_the_record(
    smiles, order, hydrogens, monkeypatch
):
    molecule = Chem.RenumberAtoms(Chem.MolFromSmiles(smiles), order)
    adapter = SmilesAdapter(target_columns=["y"], explicit_hydrogens=hydrogens).without_targets()
    dag = read_one(adapter, molecule)
    molecule = Chem.AddHs(molecule) if hydrogens else molecule
    numbers = [float(atom.GetAtomicNum()) for atom in molecule.GetAtoms()]
    drawn: list[Any] = []
    monkeypatch.setattr(of_molecules, "atom_colours", dict)
    monkeypatch.setattr(of_molecules, "_svg", lambda *parts: drawn.append(parts) or "")
    prediction = Prediction(1, "", {"y": TargetPrediction(0.25)})
    drawing = draw_graph(
        dag, prediction, RegressionHead(2, dag.schema), (), contributions(numbers), "y"
    )
    (((shown,), (atoms,)),) = drawn
    assert atoms == {n: atom.GetAtomicNum() for n, atom in enumerate(shown.GetAtoms())}
    assert drawing.target == "y"


@pytest.mark.parametrize("hydrogens", [False, "written", True])
def test_both_sides_of_a_reaction_have_the_colours_of_their_atoms(hydrogens, monkeypatch):
    adapter = SmilesAdapter(reaction="reac_diff", explicit_hydrogens=hydrogens)
    dag = read_one(adapter, "[CH3:1][Br:2].[H:7][O-:3]>C>[O:3]([H:7])[CH3:1].[Na+].[Br-:2]")
    elements = dag.features("atom")["element"].tolist()
    assert elements.count(1) == {False: 0, "written": 1, True: elements.count(1)}[hydrogens]
    drawn: list[Any] = []
    monkeypatch.setattr(of_molecules, "atom_colours", dict)
    monkeypatch.setattr(of_molecules, "_svg", lambda *parts: drawn.append(parts) or "")
    values = contributions([float(number) for number in elements])
    draw_graph(
        dag,
        Prediction(1, "", {"y": TargetPrediction(0.25)}),
        RegressionHead(2, SmilesAdapter(target_columns=["y"]).schema),
        (),
        values,
        "y",
    )
    ((sides, colours),) = drawn
    for side, atoms in zip(sides, colours, strict=True):
        assert atoms == {n: atom.GetAtomicNum() for n, atom in enumerate(side.GetAtoms())}
    assert [atom.GetAtomMapNum() for side in sides for atom in side.GetAtoms()].count(0) == sum(
        map(len, colours)
    )


def contributions(values: list[float]) -> Contributions:
    """Contributions of the atoms of a molecule to the target y."""
    return Contributions({"y": 0.0}, {"y": {"atom": values}}, {})


def test_the_strongest_contribution_has_the_full_colour():
    colours = of_molecules.atom_colours({3: -4.0, 1: 2.0, 0: 0.0})
    half = tuple((1 + channel) / 2 for channel in of_molecules.RAISES)
    assert colours == {3: pytest.approx(of_molecules.LOWERS), 1: pytest.approx(half), 0: (1, 1, 1)}


def test_what_is_drawn_is_what_the_graph_was_made_of():
    adapter = SmilesAdapter(target_columns=["y"], salts="strip").without_targets()
    dag = read_one(adapter, "Cl.OCC")
    prediction, head = Prediction(1), RegressionHead(2, dag.schema)
    drawing = draw_graph(dag, prediction, head, (), contributions([1.0, 2.0, 3.0]), "y")
    assert drawing.text == "Cl.OCC"
    assert len(elements(drawing, "ellipse")) == 3


def test_fragments_of_a_coloured_molecule_have_no_colour_themselves():
    adapter = SmilesAdapter(target_columns=["y"], fragments="rings_and_paths").without_targets()
    dag = read_one(adapter, "OCc1ccccc1")
    prediction = Prediction(1, "", {"y": TargetPrediction(0.25)})
    values = {"y": {"atom": [1.0] * 8, "fragment": [5.0] * 3}}
    found = Contributions({"y": 0.0}, values, {})
    drawing = draw_graph(dag, prediction, RegressionHead(2, dag.schema), (), found, "y")
    assert len(elements(drawing, "ellipse")) == 8
