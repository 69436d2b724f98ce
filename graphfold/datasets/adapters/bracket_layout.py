"""Bracketed trees: where one tree of a file ends and the next begins, broken ones included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from graphfold.datasets.adapters.bracket_tree import BracketText
from graphfold.datasets.files import record_limit
from graphfold.datasets.files.record_limit import RecordLimit

_BRACKET = re.compile(r"[()]")
_BLANKS = " \t"


def find_tree_indent(lines: Iterable[str]) -> int | None:
    """Finds how far lines are indented that begin a tree, to judge by the first tree of a file.

    Returns:
        The number of blanks before the first tree. None if this tree goes on in a line that begins
        with a bracket and is indented no deeper, so that only brackets can tell where it ends. A
        tree that is never closed shows nothing of the kind, nor does one of endless length.
    """
    depth, indent, length, goes_on_unindented = 0, 0, 0, False
    for line in lines:
        length += len(line)
        if length > record_limit.LONGEST_RECORD:
            break
        if depth > 0 and _begins_tree(line, indent):
            goes_on_unindented = True
        elif depth == 0:
            indent = _indent(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0 and ")" in line:
            return None if goes_on_unindented else indent
    return indent


def cut_trees(
    lines: Iterable[tuple[int, str]], indent: int | None, limit: RecordLimit
) -> Iterator[BracketText]:
    """The texts of the trees of a file, faulty ones too; what follows a tree goes with it.

    Args:
        lines: the numbered lines of the file.
        indent: a line that begins with a bracket, after so many blanks or fewer, begins the next
            tree, whether the open one is closed or not; None if no line does.
        limit: of the length of a tree.

    Raises:
        DataError: if a tree is longer than that.
    """
    tree = _OpenTree()
    for number, line in lines:
        if indent is not None and tree.depth > 0 and _begins_tree(line, indent):
            yield tree.text()
            tree = _OpenTree()
        if not tree.parts:
            limit.begin()
        limit.add(number, len(line))
        begin = 0  # of the part of the line that is not cut yet
        for match in _BRACKET.finditer(line):
            if match.group() == ")":
                tree.close()
                continue
            if tree.is_closed:
                tree.extend(number, line, begin, match.start())
                yield tree.text()
                tree, begin = _OpenTree(), match.start()
                limit.begin()
                limit.add(number, len(line) - begin)
            tree.depth += 1
        tree.extend(number, line, begin, len(line))
        if tree.depth == 0 and tree.parts:
            yield tree.text()
            tree = _OpenTree()
    if tree.parts:
        yield tree.text()


class _OpenTree:
    """The tree that is being cut out."""

    def __init__(self) -> None:
        self.parts: list[str] = []  # its text, line by line
        self.line = self.column = self.depth = 0
        self.is_closed = False  # its first bracket is closed

    def close(self) -> None:
        """Counts a closing bracket; one too many does not change the depth."""
        self.is_closed = self.is_closed or self.depth == 1
        self.depth = max(self.depth - 1, 0)

    def extend(self, number: int, line: str, begin: int, end: int) -> None:
        """Adds a part of a line; the first part begins at its first character that is no blank."""
        if not self.parts:
            begin = end - len(line[begin:end].lstrip(_BLANKS))
            self.line, self.column = number, begin + 1
        if self.parts or begin < end:
            self.parts.append(line[begin:end])

    def text(self) -> BracketText:
        """The text so far."""
        return BracketText("\n".join(self.parts).rstrip(_BLANKS + "\n"), self.line, self.column)


def _begins_tree(line: str, indent: int) -> bool:
    """Tells lines that begin with a bracket indented by `indent` characters at most."""
    return line.lstrip(_BLANKS).startswith("(") and _indent(line) <= indent


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(_BLANKS))
