"""Parsed sentences of other libraries, as CoNLL-U."""

from __future__ import annotations

from typing import Any

from graphfold.datasets.parsing.spacy_sentence import is_spacy, one_sentence, spacy_to_conllu
from graphfold.datasets.parsing.stanza_sentence import (
    is_stanza,
    one_stanza_sentence,
    stanza_to_conllu,
)


def sentence_text(item: Any) -> Any:
    """CoNLL-U of a sentence of spaCy, Stanza or the package conllu; anything else as it is.

    Raises:
        RecordError: if it is not parsed, or several sentences.
    """
    if is_spacy(item):
        return spacy_to_conllu(one_sentence(item))
    if is_stanza(item):
        return stanza_to_conllu(one_stanza_sentence(item))
    return item.serialize() if hasattr(item, "serialize") else item
