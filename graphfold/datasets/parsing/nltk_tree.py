"""Trees of NLTK, https://www.nltk.org, in brackets; NLTK itself is not imported."""

from __future__ import annotations

from typing import Any

from graphfold.datasets.readers.bracket_tree import escape_word


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
