"""Bracketed trees as text: a tree on a line, with the labels that were predicted."""

from __future__ import annotations

from collections.abc import Sequence

from graphfold.datasets.adapters.bracket_tree import BracketTree

#: The label of the tree that stands in the place of a record without a prediction.
ERROR = "ERROR"


def write_tree(tree: BracketTree, labels: Sequence[str]) -> str:
    """`(label child ...)` of a tree, whose last node is the root; without recursion.

    Args:
        tree: the tree.
        labels: of each node.
    """
    parts: list[str] = []
    rest: list[int | str] = [len(tree) - 1]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        parts.append(f" ({labels[item]}")
        rest.append(")")
        word = tree.words[item]
        if word is None:
            rest += reversed(tree.children[item])
        else:
            rest.append(f" {word}")
    return "".join(parts).lstrip(" ")


def write_fault(reason: str) -> str:
    """`(ERROR why_there_is_no_prediction)`: a tree of one word, so that records can be counted."""
    return f"({ERROR} {escape_word('_'.join(reason.split()))})"


def escape_word(word: str) -> str:
    """A word as it may stand in brackets; blanks become no-break spaces, nothing `_`."""
    word = word.replace("(", "-LRB-").replace(")", "-RRB-")
    return "".join("\xa0" if sign in " \t\n" else sign for sign in word) or "_"
