"""Texts of nodes: words, and what stands under phrases."""

from __future__ import annotations

from pathlib import Path

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, read_records
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import ConlluAdapter
from graphfold.datasets.readers.listops import ListOpsAdapter
from graphfold.inference.prediction import MOST_CHARACTERS, node_texts


def read_one(adapter: Adapter, text: str) -> TypedDAG:
    return read_records(adapter, Path(), [adapter.record_of(text)]).dag


def test_the_text_of_a_phrase_is_that_of_its_words():
    dag = read_one(BracketsAdapter(binarize=True), "(S (NP (D the) (J old) (N man)) (V sleeps))")
    words = ["the", "old", "man", "sleeps"]
    assert node_texts(dag) == [*words, "old man", "the old man", "the old man sleeps"]
    dag = read_one(ListOpsAdapter(), "4\t( ( ( [MAX 2 ) 4 ) ] )")
    assert node_texts(dag)[4:] == ["[MAX 2", "[MAX 2 4", "[MAX 2 4 ]"]


def test_a_word_keeps_its_own_text_above_others():
    rows = ["1\tdogs\t_\t_\t_\t_\t2\tnsubj\t_\t_", "2\tbark\t_\t_\t_\t_\t0\troot\t_\t_", ""]
    assert node_texts(read_one(ConlluAdapter(), "\n".join(rows))) == ["dogs", "bark"]


def test_long_texts_are_cut_so_that_a_chain_takes_linear_time():
    count = 20_000
    text = "(1 (1 word) " * (count - 1) + "(1 word)" + ")" * (count - 1)
    texts = node_texts(read_one(BracketsAdapter(num_classes=2), text))
    assert len(texts) == 2 * count - 1
    assert texts[count] == "word word"
    assert texts[-1] is not None
    assert len(texts[-1]) == MOST_CHARACTERS
    assert texts[-1].endswith("…")
