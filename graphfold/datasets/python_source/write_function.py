"""The nodes of a function: its syntax tree, the identifiers in it, and their words."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from graphfold.dag import GraphBuilder
from graphfold.datasets.python_source.identifiers import identifiers, split_name

#: What stands in the place of an identifier that is asked about; no identifier of Python.
MASK = "?"

#: Nodes that only say what the node above them does; Python keeps one of each for all places.
_MARKS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


def write_function(
    tree: ast.AST, masked: Mapping[str, Mapping[str, Any]], graph: GraphBuilder
) -> None:
    """Adds all nodes, each after its inputs; the masked identifiers are the first.

    Args:
        tree: the syntax tree.
        masked: the identifiers to be masked, each with its targets.
        graph: where to.
    """
    names = _Identifiers(masked, graph)
    numbers: dict[int, int] = {}
    for node, field in _postorder(tree):
        inputs = [names.number(name) for name in identifiers(node)]
        inputs += [numbers.pop(id(child)) for child, _ in _below(node)]
        numbers[id(node)] = graph.node("syntax", inputs, kind=_kind(node), field=field)


class _Identifiers:
    """The nodes of the identifiers and words of one function, made when they first come up."""

    def __init__(self, masked: Mapping[str, Mapping[str, Any]], graph: GraphBuilder) -> None:
        self._graph = graph
        self._words: dict[str, int] = {}
        self._numbers = {
            name: graph.node("identifier", form=MASK, **targets) for name, targets in masked.items()
        }

    def number(self, name: str) -> int:
        """The node of an identifier."""
        if name not in self._numbers:
            words = [self._word(word) for word in split_name(name)]
            self._numbers[name] = self._graph.node("identifier", words, form=name)
        return self._numbers[name]

    def _word(self, word: str) -> int:
        if word not in self._words:
            self._words[word] = self._graph.node("word", form=word)
        return self._words[word]


def _postorder(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """All nodes, those below before those above, each with its field; without recursion."""
    found: list[tuple[ast.AST, str]] = []
    stack = [(tree, "")]
    while stack:
        node, field = stack.pop()
        found.append((node, field))
        stack += _below(node)
    return found[::-1]


def _below(node: ast.AST) -> list[tuple[ast.AST, str]]:
    """The nodes below a node in order, each with its field."""
    return [
        (item, name)
        for name, value in ast.iter_fields(node)
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, ast.AST) and not isinstance(item, _MARKS)
    ]


def _kind(node: ast.AST) -> str:
    """The class of a node with its marks, such as BinOp.Add, or with the type of a constant."""
    kind = type(node).__name__
    if isinstance(node, ast.Constant):
        return f"{kind}.{type(node.value).__name__}"
    marks = (type(c).__name__ for c in ast.iter_child_nodes(node) if isinstance(c, _MARKS))
    return ".".join((kind, *marks))
