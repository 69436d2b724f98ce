"""Trees in brackets, written back."""

from __future__ import annotations

from typing import Any

import pytest
from datasets.tree_files import corpus_folder
from hypothesis import given
from hypothesis import strategies as st

from graphfold.datasets.predicted_nodes import PredictedNodes
from graphfold.datasets.readers.bracket_tree import (
    ERROR,
    BracketText,
    BracketTree,
    read_tree,
    write_fault,
    write_tree,
)
from graphfold.datasets.readers.brackets import BracketsAdapter


def read(text: str) -> BracketTree:
    return read_tree(BracketText(text, 1, 1), drops_outer=True)


def written(text: str) -> str:
    tree = read(text)
    return write_tree(tree, [label or "" for label in tree.labels])


@st.composite
def trees(draw: Any) -> str:
    parts = [f"(L{k} w{k})" for k in range(draw(st.integers(1, 8)))]
    while len(parts) > 1:
        count = draw(st.integers(1, len(parts)))
        parts[:count] = [f"(P {' '.join(parts[:count])})"]
    return parts[0]


@given(trees())
def test_what_is_written_is_what_was_read(text):
    assert written(text) == text


@pytest.mark.parametrize("name", ["sst/dev.txt"])
def test_a_real_corpus_comes_back(name, data_root):
    path = corpus_folder(data_root, name.split("/")[0]) / name.split("/")[1]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [written(line) for line in lines] == lines


def test_a_fault_is_one_tree_of_one_word():
    text = write_fault("bracket '(' opened at column 3\tis never closed")
    tree = read(text)
    assert tree.labels == [ERROR]
    assert tree.words == ["bracket_'-LRB-'_opened_at_column_3_is_never_closed"]


def give_back(adapter: BracketsAdapter, text: str, labels: dict[str, str]) -> str:
    """The tree with these labels, which are given for pieces of the text."""
    spans = [(text.index(piece), text.index(piece) + len(piece)) for piece in labels]
    predicted = PredictedNodes("", spans, {"label": list(labels.values())})
    return adapter.without_targets().write_back(text, predicted)


NAMES = ["A", "B", "S", "NP", "N"]


def test_nodes_that_the_reader_adds_do_not_come_back():
    adapter = BracketsAdapter(labels="target", label_names=NAMES, binarize=True)
    text = "(S (N a)  (N b) (N c))"
    found = {text: "A", "(N a)": "B", "(N b)": "B", "(N c)": "A", "(N b) (N c)": "S"}
    assert give_back(adapter, text, found) == "(A (B a) (B b) (A c))\n"


def test_the_inside_of_a_collapsed_chain_has_its_part_of_the_label():
    names = ["S+NP+N", "A", "A+B"]
    adapter = BracketsAdapter(labels="target", label_names=names, collapse_unary=True)
    text = "(S (NP (N a)))"
    assert give_back(adapter, text, {text: "S+NP+N"}) == "(S (NP (N a)))\n"
    assert give_back(adapter, text, {text: "A"}) == "(A (_ (_ a)))\n"
    assert give_back(adapter, text, {text: "A+B"}) == "(A+B (_ (_ a)))\n"


def test_a_tree_of_chains_comes_back_as_it_was():
    text = "(S (NP (N a)) (VP (V b) (NP (NP (N c)))))"
    adapter = BracketsAdapter(labels="target", label_names=NAMES, collapse_unary=True)
    joined = {text: "S", "(NP (N a))": "NP+N", "(VP (V b) (NP (NP (N c))))": "VP", "(V b)": "V"}
    assert give_back(adapter, text, {**joined, "(NP (NP (N c)))": "NP+NP+N"}) == text + "\n"


def test_traces_and_the_outer_bracket_of_penn():
    adapter = BracketsAdapter(
        labels="target", label_names=NAMES, remove_traces=True, strip_functions=True
    )
    text = "( (S (NP-SBJ (-NONE- *))\n  (N-1 a)))"
    found = {text[2:-1]: "A", "(N-1 a)": "B"}
    assert give_back(adapter, text, found) == "(A (NP-SBJ (-NONE- *)) (B a))\n"


def test_words_without_brackets_get_labels():
    adapter = BracketsAdapter(num_classes=5)
    found = {"((good) film)": "4", "(good)": "3", "film": "2"}
    assert give_back(adapter, "((good) film)", found) == "(4 (3 good) (2 film))\n"
