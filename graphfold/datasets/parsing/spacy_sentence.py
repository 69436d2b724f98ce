"""Parsed sentences of spaCy, https://spacy.io, as CoNLL-U; spaCy itself is not imported."""

from __future__ import annotations

from typing import Any

from graphfold.datasets.parsing.conllu_text import conllu_line, conllu_text
from graphfold.errors import RecordError


def is_spacy(item: Any) -> bool:
    """True for a Doc and a Span."""
    return hasattr(item, "sents") and hasattr(item, "vocab")


def one_sentence(item: Any) -> Any:
    """The one sentence of a Doc or a Span.

    Raises:
        RecordError: if it has several, or none is marked.
    """
    doc = getattr(item, "doc", item)
    if not doc.has_annotation("SENT_START"):
        fault = "the spaCy text has no sentences and no heads"
        raise RecordError(fault, "Use a pipeline with a parser.")
    sentences = list(item.sents)
    if len(sentences) != 1:
        fault = f"the spaCy text has {len(sentences)} sentences"
        raise RecordError(fault, "Give one at a time: doc.sents has them.")
    return sentences[0]


def spacy_to_conllu(sentence: Any) -> str:
    """One sentence, a Span, as CoNLL-U.

    Tokens of blanks alone are left out; their dependents, if any, go to their heads. Labels of
    relations are those of the pipeline, which for English are not those of Universal Dependencies.

    Raises:
        RecordError: if it is not parsed.
    """
    if not sentence.doc.has_annotation("DEP"):
        fault = "the spaCy text has no heads"
        raise RecordError(fault, "Use a pipeline with a parser.")
    words = [token for token in sentence if not token.is_space]
    numbers = {token.i: number for number, token in enumerate(words, start=1)}
    lines = []
    for token in words:
        head = _head(token)
        lines.append(
            conllu_line(
                numbers[token.i],
                token.text,
                token.lemma_,
                token.pos_,
                token.tag_,
                token.morph,
                0 if head is None else numbers[head.i],
                "root" if head is None else token.dep_,
                None,
                None if token.whitespace_ else "SpaceAfter=No",
            )
        )
    return conllu_text(sentence.text, lines)


def _head(token: Any) -> Any:
    """The head that is a word; None of the root."""
    while token.head.i != token.i:
        token = token.head
        if not token.is_space:
            return token
    return None
