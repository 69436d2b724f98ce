"""Parsed sentences of other libraries in the formats that adapters read; none is imported here.

Trees of NLTK (https://www.nltk.org) become brackets; sentences of spaCy (https://spacy.io) and of
Stanza (https://stanfordnlp.github.io/stanza) CoNLL-U, or brackets where they have constituents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphfold.datasets.readers.bracket_tree import escape_word
from graphfold.errors import RecordError


def conllu_line(*cells: object) -> str:
    """The ten columns of a token; `_` for no value."""
    texts = (" ".join(str(cell).split()) if cell is not None else "" for cell in cells)
    return "\t".join(text or "_" for text in texts)


def conllu_text(text: str, lines: Iterable[str]) -> str:
    """A sentence with its comment `# text`."""
    return "\n".join([f"# text = {' '.join(text.split())}", *lines, ""])


def is_nltk_tree(item: Any) -> bool:
    """True for a Tree: a list with a label."""
    return isinstance(item, list) and callable(getattr(item, "label", None))


def nltk_to_brackets(tree: Any) -> str:
    """A tree in brackets, on one line; a leaf that is a pair of word and tag gives its word."""
    parts: list[str] = []
    rest: list[Any] = [tree]
    closing = object()
    while rest:
        item = rest.pop()
        if item is closing:
            parts.append(")")
        elif is_nltk_tree(item):
            parts.append(f" ({escape_word(str(item.label()))}")
            rest.append(closing)
            rest += reversed(item)
        else:
            word = item[0] if isinstance(item, tuple) else item
            parts.append(f" {escape_word(str(word))}")
    return "".join(parts).lstrip(" ")


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
