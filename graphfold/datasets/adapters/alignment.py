"""Alignment of the tokens of a sentence with its text."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[int, int]


def align(tokens: Sequence[str], text: str) -> list[Span] | None:
    """First and last-plus-one character of every token, found from left to right.

    Between two tokens there may be blanks of any kind and nothing else.

    Returns:
        One span per token; None if some token is not where it should be.
    """
    spans = []
    position = 0
    for token in tokens:
        while not text.startswith(token, position):
            if position >= len(text) or not text[position].isspace():
                return None
            position += 1
        spans.append((position, position + len(token)))
        position += len(token)
    return spans
