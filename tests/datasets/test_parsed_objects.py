"""Objects of NLTK, spaCy, Stanza and the package conllu as records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conllu
import pytest

from graphfold.dag import TypedDAG
from graphfold.datasets.adapter import Adapter, read_records
from graphfold.datasets.readers.brackets import BracketsAdapter
from graphfold.datasets.readers.conllu import UPOS, ConlluAdapter
from graphfold.errors import RecordError

SENTIMENTS = BracketsAdapter(num_classes=5).without_targets()
WORDS = ConlluAdapter()


def graph_of(adapter: Adapter, item: Any) -> TypedDAG:
    return read_records(adapter, Path(), [adapter.record_of(item)]).dag


class Nested(list[Any]):
    """A tree as NLTK has it: a list of trees and words with a label."""

    def __init__(self, name: str, children: list[Any]) -> None:
        super().__init__(children)
        self.name = name

    def label(self) -> str:
        return self.name


def test_a_tree_of_nltk_is_read_without_its_labels() -> None:
    nltk = pytest.importorskip("nltk", reason="nltk is not installed")
    tree = nltk.Tree.fromstring("(S (NP (DT The) (NN film)) (VP (VBZ is) (JJ good)))")
    dag = graph_of(SENTIMENTS, tree)
    assert dag.strings("type:word", "form") == ["The", "film", "is", "good"]
    assert dag.num_nodes_by_type == [4, 3]
    kept = graph_of(BracketsAdapter(), tree)
    assert kept.strings("type:phrase", "label") == ["NP", "VP", "S"]
    assert kept.strings("type:word", "label") == ["DT", "NN", "VBZ", "JJ"]


def test_trees_with_odd_words_and_of_any_depth() -> None:
    tree = Nested("S", [Nested("A", ["(a b)"]), Nested("B", [("word", "TAG")]), "bare", ""])
    dag = graph_of(SENTIMENTS, tree)
    assert dag.strings("type:word", "form") == ["-LRB-a\xa0b-RRB-", "word", "bare", "_"]
    deep = Nested("S", ["w"])
    for _ in range(5000):
        deep = Nested("S", [deep])
    assert graph_of(SENTIMENTS, deep).num_nodes == 5001
    with pytest.raises(RecordError, match="neither a word nor a child"):
        graph_of(BracketsAdapter(), Nested("S", []))


def test_a_sentence_of_spacy_is_read() -> None:
    spacy = pytest.importorskip("spacy", reason="spacy is not installed")
    tokens = spacy.tokens.Doc(
        spacy.blank("en").vocab,
        words=["She", "sees", "\n", "him", "."],
        spaces=[True, True, False, False, False],
        heads=[1, 1, 1, 1, 1],
        deps=["nsubj", "ROOT", "", "obj", "punct"],
        pos=["PRON", "VERB", "SPACE", "PRON", "PUNCT"],
    )
    for item in (tokens, tokens[0:5], next(tokens.sents)):
        dag = graph_of(WORDS, item)
        assert dag.strings("type:word", "form") == ["She", "sees", "him", "."]
        assert dag.strings("inputs", "deprel") == ["nsubj", "obj", "punct"]
    with pytest.raises(RecordError, match="no sentences and no heads"):
        WORDS.record_of(spacy.blank("en")("not parsed"))
    with pytest.raises(RecordError, match="no constituents"):
        SENTIMENTS.record_of(tokens)


class Token(SimpleNamespace):
    """A token as spaCy has it."""


def spacy_doc(words: list[tuple[str, str, int]], starts: tuple[int, ...] = (0,)) -> Any:
    """A Doc in as far as it is read: form, relation and head (from 0) of each token."""
    tokens = [
        Token(
            i=i,
            text=form,
            lemma_=form.lower(),
            pos_="X",
            tag_="",
            morph="",
            dep_=dep,
            whitespace_=" ",
            is_space=not form.strip(),
        )
        for i, (form, dep, _) in enumerate(words)
    ]
    for token, (_, _, head) in zip(tokens, words, strict=True):
        token.head = tokens[head]
    doc = SimpleNamespace(vocab=None, has_annotation=lambda name: True)

    class Span(list[Any]):
        text = " ".join(form for form, _, _ in words)

    ends = (*starts[1:], len(tokens))
    doc.sents = [Span(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]
    for span in doc.sents:
        span.doc = doc  # type: ignore[attr-defined]
    return doc


def test_tokens_of_blanks_are_no_words_of_a_spacy_sentence() -> None:
    doc = spacy_doc([("a", "det", 1), ("\n", "dep", 2), ("b", "ROOT", 2), (" ", "", 2)])
    record = WORDS.record_of(doc)
    assert record.content == [
        "# text = a b",
        "1\ta\ta\tX\t_\t_\t2\tdet\t_\t_",
        "2\tb\tb\tX\t_\t_\t0\troot\t_\t_",
    ]
    with pytest.raises(RecordError, match="has 2 sentences"):
        WORDS.record_of(spacy_doc([("a", "ROOT", 0), ("b", "ROOT", 1)], (0, 1)))


def stanza_sentence(constituency: Any = None) -> Any:
    """French `du` in two words, as Stanza has it."""
    word = SimpleNamespace
    words = [
        word(
            id=1, text="vue", lemma="vue", upos="NOUN", xpos=None, feats=None, head=0, deprel="root"
        ),
        word(id=2, text="de", lemma="de", upos="ADP", xpos=None, feats=None, head=3, deprel="case"),
        word(
            id=3,
            text="le",
            lemma="le",
            upos="DET",
            xpos=None,
            feats="Gender=Masc",
            head=1,
            deprel="nmod",
        ),
    ]
    tokens = [
        SimpleNamespace(text="vue", words=words[:1]),
        SimpleNamespace(text="du", words=words[1:]),
    ]
    return SimpleNamespace(text="vue du", words=words, tokens=tokens, constituency=constituency)


def test_a_sentence_of_stanza_is_read_with_its_multiword_tokens() -> None:
    for item in (stanza_sentence(), SimpleNamespace(sentences=[stanza_sentence()])):
        record = WORDS.record_of(item)
        assert record.content[2] == "2-3\tdu" + "\t_" * 8
        dag = graph_of(WORDS, item)
        assert dag.strings("type:word", "form") == ["vue", "de", "le"]
        assert dag.span.tolist() == [[0, 3], [4, 6], [4, 6]]
        assert dag.node_targets["upos"].tolist() == [UPOS.index(t) for t in ("NOUN", "ADP", "DET")]
    with pytest.raises(RecordError, match="has 0 sentences"):
        WORDS.record_of(SimpleNamespace(sentences=[]))
    unparsed = stanza_sentence()
    unparsed.words[1].head = None
    with pytest.raises(RecordError, match="the word 'de' has no head"):
        WORDS.record_of(unparsed)


def test_the_constituents_of_stanza_and_benepar_are_read() -> None:
    class Tree(SimpleNamespace):
        def __str__(self) -> str:
            return str(self.text)

    inner = Tree(label="S", children=[], text="(S (NP (N dogs)) (VP (V bark)))")
    root = Tree(label="ROOT", children=[inner], text=f"(ROOT {inner.text})")
    dag = graph_of(SENTIMENTS, stanza_sentence(root))
    assert dag.strings("type:word", "form") == ["dogs", "bark"]
    assert dag.num_nodes_by_type == [2, 3]
    with pytest.raises(RecordError, match="no constituents"):
        SENTIMENTS.record_of(stanza_sentence())
    doc = spacy_doc([("dogs", "", 0), ("bark", "", 1)])
    doc.sents[0]._ = SimpleNamespace(has=lambda name: True, parse_string=inner.text)
    collapsed = BracketsAdapter(num_classes=5, collapse_unary=True).without_targets()
    assert graph_of(collapsed, doc).num_nodes_by_type == [2, 1]


def test_a_sentence_of_the_package_conllu_is_read() -> None:
    words = ["1\tdogs\t_\t_\t_\t_\t2\tnsubj\t_\t_", "2\tbark\t_\t_\t_\t_\t0\troot\t_\t_"]
    text = "\n".join(["# text = dogs bark", *words, ""])
    (sentence,) = conllu.parse(text)
    assert WORDS.record_of(sentence).content == text.splitlines()
