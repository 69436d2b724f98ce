"""Identifiers: where they stand in a syntax tree, their words, and the choice of one."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterator

_RUNS = re.compile(r"[^\W\d_]+|\d+")

#: Where a word begins inside a run of letters: the L of readLine, the S of HTTPServer.
_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def choose_name(names: Collection[str], key: str) -> str | None:
    """One of some names, always the same for the same key; None of none."""
    return min(names, key=lambda n: hashlib.sha256(f"{key} {n}".encode()).digest(), default=None)


def identifiers(node: ast.AST) -> Iterator[str]:
    """The identifiers that stand at a node itself, in order; those in `a.b` one by one."""
    if isinstance(node, ast.Constant):
        return
    for name, value in ast.iter_fields(node):
        if name == "type_comment":
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield from item.split(".")


def split_name(name: str) -> list[str]:
    """The words of an identifier in lower case: `readLine_2` is read, line, 2."""
    runs: list[str] = _RUNS.findall(name)
    return [part.lower() for run in runs for part in _BREAKS.split(run)] or [name]
