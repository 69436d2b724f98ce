"""Parsed sentences of Stanza, https://stanfordnlp.github.io/stanza; it is not imported."""

from __future__ import annotations

from typing import Any

from graphfold.datasets.parsing.conllu_text import conllu_line, conllu_text
from graphfold.errors import RecordError


def is_stanza(item: Any) -> bool:
    """True for a Document and a Sentence."""
    return hasattr(item, "sentences") or (hasattr(item, "words") and hasattr(item, "tokens"))


def one_stanza_sentence(item: Any) -> Any:
    """The one sentence of a Document, or a Sentence itself.

    Raises:
        RecordError: if there are several or none.
    """
    sentences = getattr(item, "sentences", [item])
    if len(sentences) != 1:
        fault = f"the Stanza document has {len(sentences)} sentences"
        raise RecordError(fault, "Give one at a time: its attribute sentences has them.")
    return sentences[0]


def stanza_to_conllu(sentence: Any) -> str:
    """One sentence as CoNLL-U, with its multiword tokens.

    Raises:
        RecordError: if it is not parsed.
    """
    lines = []
    for token in sentence.tokens:
        words = token.words
        if len(words) > 1:
            ids = f"{words[0].id}-{words[-1].id}"
            lines.append(conllu_line(ids, token.text, *[None] * 8))
        for word in words:
            if word.head is None:
                fault = f"the word '{word.text}' has no head"
                raise RecordError(fault, "Use a pipeline with the processor depparse.")
            columns = (word.lemma, word.upos, word.xpos, word.feats, word.head, word.deprel)
            lines.append(conllu_line(word.id, word.text, *columns, None, None))
    return conllu_text(sentence.text, lines)


def stanza_to_brackets(sentence: Any) -> str:
    """The constituency tree of one sentence, without the node ROOT above it.

    Raises:
        RecordError: if it has none.
    """
    tree = getattr(sentence, "constituency", None)
    if tree is None:
        fault = "the Stanza sentence has no constituents"
        raise RecordError(fault, "Use a pipeline with the processor constituency.")
    return str(tree.children[0] if tree.label == "ROOT" and len(tree.children) == 1 else tree)
