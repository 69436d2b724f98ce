"""Pictures of graphs: what is in them, where it stands, and graphs of every shape."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inference.drawing.drawn import SVG, drawing_of, elements, pills, read_one, size, texts
from training.tiny_runs import write_corpora

from graphfold.dag import Column, GraphBuilder, NodeType, Schema
from graphfold.datasets.adapter import read_records
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import UPOS, ConlluAdapter
from graphfold.datasets.readers.listops import ListOpsAdapter
from graphfold.datasets.readers.pairs import PairsAdapter
from graphfold.datasets.readers.smiles import SmilesAdapter
from graphfold.errors import ConfigError
from graphfold.inference.drawing.drawing import Drawing, draw_graph
from graphfold.inference.drawing.svg import class_colours, ink_on, text_width
from graphfold.inference.prediction import Prediction, describe
from graphfold.layers.heads.classification import ClassificationHead
from graphfold.layers.heads.eval_rows import Predicted
from graphfold.layers.heads.head import TargetPrediction
from graphfold.layers.heads.regression import RegressionHead
from graphfold.layers.heads.relatedness import RelatednessHead

TREES = BracketsAdapter(num_classes=5).without_targets()
WORDS = ConlluAdapter()


def sentence(heads: list[int], relations: list[str] | None = None) -> str:
    """CoNLL-U of words w1, w2 and so on with these heads."""
    rows = [
        f"{k}\tw{k}\t_\t_\t_\t_\t{head}\t{relations[k - 1] if relations else 'dep'}\t_\t_"
        for k, head in enumerate(heads, 1)
    ]
    return "\n".join([*rows, ""])


def test_phrases_that_reading_split_are_drawn_as_they_stand_in_the_input() -> None:
    wide = "(4 (0 a) (1 b) (2 c) (3 d))"
    split = BracketsAdapter(num_classes=5, binarize=True).without_targets()
    classes = [0, 1, 2, 3]  # of the words; the two phrases that were added get 1
    plain = drawing_of(TREES, wide, [*classes, 4])
    drawn = drawing_of(split, wide, [*classes, 1, 1, 4])
    assert drawn.svg == plain.svg


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


def test_a_tree_has_its_words_in_a_row_and_a_coloured_class_in_every_node() -> None:
    drawing = drawing_of(TREES, "(_ (_ very) (_ (_ good) (_ film)))", [2, 4, 2, 3, 4])
    colours = class_colours(range(5))
    assert [colour for *_, colour in pills(drawing)] == [colours[c] for c in "24234"]
    words = [e for e in elements(drawing, "text") if e.text in ("very", "good", "film")]
    assert [word.text for word in words] == ["very", "good", "film"]
    assert len({word.get("y") for word in words}) == 1
    places = [float(word.get("x", "nan")) for word in words]
    assert places == sorted(places)
    titles = [element.text or "" for element in elements(drawing, "title")]
    assert titles[1].startswith("4: 0.900\n0: 0.025")
    assert len(elements(drawing, "line")) == 4
    assert drawing.text == "very good film"
    assert drawing._repr_svg_() == drawing.svg


def test_a_wrong_class_has_a_frame_and_the_right_one_beside_it() -> None:
    wanted = ["2", "3", None]
    drawing = drawing_of(TREES, "(_ (_ good) (_ film))", [2, 2, 3], wanted=wanted)
    framed = [r for r in elements(drawing, "rect") if r.get("stroke-width") == "2"]
    assert len(framed) == 1
    assert sorted(texts(drawing)) == ["2", "2", "3", "3", "film", "good"]


@given(trees())
def test_nothing_overlaps_in_a_tree(text: str) -> None:
    drawing = drawing_of(TREES, text)
    places = pills(drawing)
    for (x1, y1, w1, h1, _), (x2, y2, w2, h2, _) in combinations(places, 2):
        is_apart = x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
        assert is_apart
    width, height = size(drawing)
    for x, y, w, h, _ in places:  # within the margin of 8 pixels
        assert 0 <= x <= x + w <= width - 16
        assert 0 <= y <= y + h <= height - 16
    words = [e for e in elements(drawing, "text") if (e.text or "").startswith("w")]
    ends = [(float(e.get("x", 0)), text_width(e.text or "", 14) / 2) for e in words]
    for (a, half_a), (b, half_b) in pairwise(ends):
        assert a + half_a < b - half_b


@given(trees())
def test_no_edge_of_a_tree_crosses_another(text: str) -> None:
    lines = [
        tuple(float(line.get(name, "nan")) for name in ("x1", "y1", "x2", "y2"))
        for line in elements(drawing_of(TREES, text), "line")
    ]

    def side(line: tuple[float, ...], x: float, y: float) -> float:
        x1, y1, x2, y2 = line
        return (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)

    for a, b in combinations(lines, 2):
        is_across = side(a, *b[:2]) * side(a, *b[2:]) < -1e-6
        assert not (is_across and side(b, *a[:2]) * side(b, *a[2:]) < -1e-6)


def test_ordered_classes_go_from_red_over_white_to_blue() -> None:
    five = class_colours(range(5))
    channels = [[int(five[str(k)][i : i + 2], 16) for i in (1, 3, 5)] for k in range(5)]
    assert channels[0][0] > 2 * channels[0][2]
    assert min(channels[2]) > 230
    assert channels[4][2] > 2 * channels[4][0]
    assert class_colours(["0", "1"]) == {"0": five["0"], "1": five["4"]}
    assert len(set(class_colours(UPOS).values())) == len(UPOS)
    assert class_colours(["only"]).keys() == {"only"}
    assert (ink_on("#ffffff"), ink_on("#202020")) == ("#1a202c", "#ffffff")


def test_a_dependency_tree_has_an_arc_for_each_relation_and_tags_under_the_words() -> None:
    relations = ["nsubj", "root", "obj"]
    codes = [UPOS.index(tag) for tag in ("PRON", "VERB", "NOUN")]
    drawing = drawing_of(WORDS, sentence([2, 0, 2], relations), codes)
    assert {"nsubj", "obj", "root", "PRON", "VERB", "NOUN", "w1", "w2", "w3"} == {*texts(drawing)}
    arcs = [p for p in elements(drawing, "path") if "Q" in p.get("d", "")]
    assert len(arcs) == 2
    assert not elements(drawing, "line")


def heights(drawing: Drawing) -> list[float]:
    """The height of the horizontal part of every arc."""
    paths = (path.get("d", "") for path in elements(drawing, "path"))
    found = (re.search(r"Q[-\d.]+ ([-\d.]+) ", path) for path in paths)
    return [float(match[1]) for match in found if match]


def test_crossing_arcs_are_drawn_at_heights_of_their_own() -> None:
    drawing = drawing_of(WORDS, sentence([3, 4, 0, 3]))  # 1 <- 3 and 2 <- 4 cross
    top, *others = sorted(heights(drawing))
    assert len(others) == 2
    assert top < min(others)  # that of 2 <- 4, which overlaps both others


def test_labels_of_arcs_have_room() -> None:
    label = "a:very:long:relation"
    drawing = drawing_of(WORDS, sentence([0, 1], ["root", label]))
    first, second = (e for e in elements(drawing, "text") if (e.text or "").startswith("w"))
    distance = float(second.get("x", 0)) - float(first.get("x", 0))
    assert distance > text_width(label, 11) + 10


def test_predicted_relations_stand_on_the_arcs() -> None:
    schema = Schema(
        (NodeType("word", features=(Column("form", "string"),)),),
        node_targets=(Column("deprel", "int64", names=("nsubj", "root")),),
    )
    graph = GraphBuilder(schema)
    words = [graph.node("word", form=form) for form in ("dogs", "bark")]
    graph.inputs(words[1], [words[0]])
    graph.output(*words)
    graph.finish()
    dag = graph.build()
    head = ClassificationHead(2, schema, "node")
    (prediction,) = describe(dag, head, Predicted(torch.eye(2)))
    drawing = draw_graph(dag, prediction, head, ["root", "root"])
    assert texts(drawing) == ["root", "root", "nsubj", "dogs", "bark"]
    word = next(e for e in elements(drawing, "text") if e.text == "dogs")
    assert all(top + height < float(word.get("y", 0)) for _, top, _, height, _ in pills(drawing))


def test_pairs_are_two_trees_and_a_score(tmp_path: Path) -> None:
    folder = write_corpora(tmp_path) / "sick" / "parsed" / "test"
    adapter = PairsAdapter()
    dag = read_records(adapter, folder, [next(adapter.records(folder))]).dag
    prediction = Prediction(1, "", {"relatedness": TargetPrediction(3.5)})
    drawing = draw_graph(dag, prediction, RelatednessHead(2, dag.schema))
    assert texts(drawing).count("root") == 2
    assert len(heights(drawing)) == 4
    assert drawing.told == "relatedness: 3.5"
    assert len(drawing.text.splitlines()) == 2


def test_molecules_are_drawn_as_such() -> None:
    adapter = SmilesAdapter(target_columns=["y"]).without_targets()
    dag = read_records(adapter, Path(), [adapter.record_of("c1ccccc1O")]).dag
    prediction = Prediction(1, "", {"y": TargetPrediction(0.25)})
    drawing = draw_graph(dag, prediction, RegressionHead(2, dag.schema))
    assert (drawing.text, drawing.told) == ("c1ccccc1O", "y: 0.25")
    assert elements(drawing, "path")


def test_names_of_inner_nodes_are_drawn_beside_words() -> None:
    drawing = drawing_of(ListOpsAdapter(), "4\t( ( ( [MAX 2 ) 4 ) ] )", [4], "graph")
    assert len(elements(drawing, "circle")) == 2  # the brackets inside have neither
    schema = Schema(
        (
            NodeType("word", 0, (Column("form", "string"),)),
            NodeType("syntax", None, (Column("kind", "string"),)),
        ),
        graph_targets=(Column("name", "int64", size=2),),
    )
    graph = GraphBuilder(schema)
    shared = graph.node("word", form="x")
    sides = [graph.node("syntax", [shared], kind=kind) for kind in ("Load", "Store")]
    graph.output(graph.node("syntax", sides, kind="Assign"))
    graph.finish()
    prediction = Prediction(1, "", {"name": TargetPrediction(1, {0: 0.2, 1: 0.8})})
    head = ClassificationHead(2, schema, "graph")
    drawing = draw_graph(graph.build(), prediction, head)
    assert sorted(texts(drawing)) == ["1", "Assign", "Load", "Store", "x"]
    assert len(elements(drawing, "line")) == 4


def test_list_operations_have_the_answer_at_the_root() -> None:
    drawing = drawing_of(ListOpsAdapter(), "4\t( ( ( [MAX 2 ) 4 ) ] )", [4], "graph")
    assert sorted(texts(drawing)) == sorted(["[MAX", "2", "4", "]", "4"])
    assert len(pills(drawing)) == 1
    assert drawing.told == "answer: 4 (0.90)"
    assert drawing.text == "( ( ( [MAX 2 ) 4 ) ] )"


def test_records_without_words_show_strings_or_the_names_of_types() -> None:
    operator = (Column("operator", "string"),)
    cost = (Column("cost"),)
    plan = Schema(
        (NodeType("leaf", 0, operator), NodeType("unary", 1, operator)), graph_targets=cost
    )
    graph = GraphBuilder(plan)
    graph.output(graph.node("unary", [graph.node("leaf", operator="Seq Scan")], operator="Sort"))
    graph.finish(cost=3.0)
    dag = graph.build()
    prediction = Prediction(1, "", {"cost": TargetPrediction(12.3456)})
    drawing = draw_graph(dag, prediction, RegressionHead(2, plan), ["3"])
    assert texts(drawing) == ["Seq Scan", "12.35", "Sort"]
    record = Schema((NodeType("$.owner.name", 0), NodeType("$", None)), graph_targets=cost)
    graph = GraphBuilder(record)
    graph.output(graph.node("$", [graph.node("$.owner.name")]))
    graph.finish(cost=3.0)
    drawing = draw_graph(graph.build(), prediction, RegressionHead(2, record))
    assert texts(drawing) == [".owner.name", "12.35", "$"]


@pytest.mark.parametrize(
    ("adapter", "text", "words"),
    [
        (TREES, "(2 word)", 1),
        (TREES, chain(500), 500),
        (TREES, chain(5000), 5000),
        (TREES, "(2 " * 5000 + "(2 w)" + ")" * 5000, 1),
        (TREES, f"(2 {'(2 w) ' * 40})", 40),
        (WORDS, sentence([0]), 1),
        (WORDS, sentence(list(range(5000))), 5000),
        (WORDS, sentence([0] + [1] * 1999), 2000),
    ],
    ids=["word", "500", "chain", "unary", "wide", "one", "dependencies", "star"],
)
def test_trees_of_every_shape(adapter: Any, text: str, words: int) -> None:
    drawing = drawing_of(adapter, text)
    drawn = [t for t in texts(drawing) if t.startswith("w")]
    assert len(drawn) == words
    assert len(pills(drawing)) == read_one(adapter, text).num_nodes


def test_any_text_can_be_drawn() -> None:
    words = ["<b>", "&amp;", "שלום", "مرحبا", "👩‍🚀", "e\u0301", "\x01\ufffe", '"', "x" * 300]
    drawing = drawing_of(TREES, f"(2 {' '.join(f'(2 {word})' for word in words)})")
    shown = [text for text in texts(drawing) if text != "0"]
    assert shown[:6] == words[:6]
    assert shown[6] == "\ufffd\ufffd"
    assert shown[8] == "x" * 39 + "…"
    assert not elements(drawing, "b")


def test_a_drawing_is_written_whole_or_refused(tmp_path: Path) -> None:
    drawing = drawing_of(TREES, "(2 word)")
    drawing.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == drawing.svg + "\n"
    assert drawing.svg.startswith(f'<svg xmlns="{SVG[1:-1]}"')
    with pytest.raises(ConfigError, match="does not exist"):
        drawing.save(str(tmp_path / "no" / "a.svg"))
