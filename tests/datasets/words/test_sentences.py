"""Sentences: the words of each tree, also of two in one graph and of a long chain."""

from __future__ import annotations

from pathlib import Path

from datasets.tree_files import read, write

from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import ConlluAdapter
from graphfold.datasets.readers.pairs import PairsAdapter
from graphfold.datasets.words.contextual import sentences


def test_the_words_of_a_tree_are_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, "(S (A a) (B (C b) (D c)))\n(E d)\n")
    dag = read(BracketsAdapter(), path).dag
    assert [s.tolist() for s in sentences(dag, "word")] == [[0, 1, 2], [3]]


def test_a_pair_is_two_sentences(tmp_path: Path) -> None:
    files = {"toks": "x y\nz\n", "parents": "2 0\n0\n", "rels": "d root\nroot\n"}
    for side in "ab":
        for name, text in files.items():
            (tmp_path / f"{side}.{name}").write_text(text)
    dag = read(PairsAdapter(), tmp_path).dag
    assert [s.tolist() for s in sentences(dag, "word")] == [[0, 1], [2, 3], [4], [5]]


def test_a_crossing_tree_and_a_long_chain_keep_the_order_of_words(tmp_path: Path) -> None:
    def row(number: int, head: int) -> str:
        return f"{number}\tw{number}\t_\tX\t_\t_\t{head}\t{'dep' if head else 'root'}\t_\t_\n"

    crossing = row(1, 3) + row(2, 4) + row(3, 0) + row(4, 3) + "\n"
    chain = "".join(row(n, n + 1 if n < 5000 else 0) for n in range(1, 5001)) + "\n"
    dag = read(ConlluAdapter(), write(tmp_path, crossing + chain)).dag
    first, second = sentences(dag, "word")
    assert first.tolist() == [0, 1, 2, 3]
    assert second.tolist() == list(range(4, 5004))
