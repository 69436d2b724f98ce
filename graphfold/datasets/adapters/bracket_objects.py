"""Constituency trees of other libraries, as brackets."""

from __future__ import annotations

from typing import Any

from graphfold.datasets.parsing.nltk_tree import is_nltk_tree, nltk_to_brackets
from graphfold.datasets.parsing.spacy_sentence import is_spacy, one_sentence
from graphfold.datasets.parsing.stanza_sentence import (
    is_stanza,
    one_stanza_sentence,
    stanza_to_brackets,
)
from graphfold.errors import RecordError


def bracket_text(item: Any) -> str | None:
    """The brackets of an object of NLTK, spaCy with benepar, or Stanza; None of anything else.

    Raises:
        RecordError: if it holds no constituency tree, or several.
    """
    if is_nltk_tree(item):
        return nltk_to_brackets(item)
    if is_spacy(item):
        sentence = one_sentence(item)
        if not sentence._.has("parse_string"):
            fault = "the spaCy text has no constituents"
            raise RecordError(fault, "Add benepar to the pipeline.")
        return str(sentence._.parse_string)
    if is_stanza(item):
        return stanza_to_brackets(one_stanza_sentence(item))
    return None
