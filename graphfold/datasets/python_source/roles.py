"""Roles of variables: how each variable of a function gets its values."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

#: The roles; the code of one is its position here.
ROLES = ("fixed", "changed", "gathered", "loop", "resource", "recent")

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
_STEPS = (ast.For, ast.AsyncFor, ast.comprehension)


class _Place(NamedTuple):
    """The surroundings of a node: how names under it get their values, and what these are."""

    binder: str = "assigned"
    reads: frozenset[str] = frozenset()  # the names in the new value
    in_loop: bool = False


@dataclass
class _Facts:
    """The ways in which a name gets its values."""

    is_parameter: bool = False
    is_gathered: bool = False
    is_recent: bool = False
    is_loop: bool = False
    is_resource: bool = False
    assigned: int = 0


def find_roles(function: ast.AST) -> dict[str, str | None]:
    """Name -> role, of all variables; None for parameters. Not `self` and `cls`; no recursion.

    After the roles of variables of Sajaniemi (2002), https://doi.org/10.1109/HCC.2002.1046340,
    told by fixed rules, of which the first that holds decides:

    - gathered: in a loop it gets a value that is made of its old one;
    - loop: it takes the values that a loop or a comprehension goes through;
    - resource: what `with` or `except` gives it;
    - recent: it is assigned to in a loop, so it holds the latest of several values;
    - changed, fixed: it is assigned to in several places, or in one.

    Names of functions inside it are taken together with its own.
    """
    facts: dict[str, _Facts] = defaultdict(_Facts)
    stack: list[tuple[ast.AST, _Place]] = [(function, _Place())]
    while stack:
        node, place = stack.pop()
        if isinstance(node, ast.arg):
            facts[node.arg].is_parameter = True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            _bind(facts[node.id], node.id, place)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            facts[node.name].is_resource = True
        stack += _below(node, place)
    return {name: _role(found) for name, found in facts.items() if name not in ("self", "cls")}


def _below(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """The nodes below a node with their surroundings."""
    in_loop = place.in_loop or isinstance(node, _LOOPS)
    inside = _Place(in_loop=in_loop)
    for name, value in ast.iter_fields(node):
        own = place._replace(in_loop=in_loop) if isinstance(node, ast.expr) else inside
        if name in ("target", "targets"):
            own = inside._replace(binder="loop") if isinstance(node, _STEPS) else own
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                own = inside._replace(reads=_reads(node))
        elif name == "optional_vars":
            own = inside._replace(binder="resource")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield item, own


def _reads(node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) -> frozenset[str]:
    """The names that the new value is made of."""
    sources = [node.value] if node.value is not None else []
    sources += [node.target] if isinstance(node, ast.AugAssign) else []
    below = (part for source in sources for part in ast.walk(source))
    return frozenset(part.id for part in below if isinstance(part, ast.Name))


def _bind(facts: _Facts, name: str, place: _Place) -> None:
    facts.is_loop |= place.binder == "loop"
    facts.is_resource |= place.binder == "resource"
    facts.is_gathered |= place.in_loop and name in place.reads
    facts.is_recent |= place.in_loop
    facts.assigned += place.binder == "assigned"


def _role(facts: _Facts) -> str | None:
    if facts.is_parameter:
        return None
    if facts.is_gathered:
        return "gathered"
    if facts.is_loop:
        return "loop"
    if facts.is_resource:
        return "resource"
    if facts.is_recent:
        return "recent"
    return "changed" if facts.assigned > 1 else "fixed"
