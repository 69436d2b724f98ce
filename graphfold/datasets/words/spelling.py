"""Spelling: the ways in which a file of vectors, or an encoder, may know a word of a corpus."""

from __future__ import annotations

from collections.abc import Iterator

#: The Penn Treebank's names of characters that its own format needs, or that typewriters lack:
#: Bies et al. (1995), section 2.1.
ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def unescaped(word: str) -> str:
    """The word as it stands in a text: `(` for the Penn Treebank's `-LRB-`, `/` for its `\\/`."""
    # `lowercase` comes before, so that an escape may have lost its capitals.
    return ESCAPED.get(word.upper(), word.replace("\\/", "/").replace("\\*", "*"))


def spellings(word: str) -> Iterator[str]:
    """The spellings under which a word is looked up, best first, each once.

    The word itself, the same without the Penn Treebank's escapes, and this in lower case.
    """
    plain = unescaped(word)
    yield from dict.fromkeys((word, plain, plain.lower()))
