"""Definitions: what the source files of graphfold define, read without importing them.

Importing takes a second or more, for torch; a list of names is shown at once.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Definition:
    """A class or function.

    Args:
        summary: the first line of its docstring.
        arguments: of the function or of `__init__`, name -> default as it is written, or None.
        is_abstract: whether it is a class that only others derive from.
        decorators: as they are written.
    """

    summary: str
    arguments: dict[str, str | None]
    is_abstract: bool
    decorators: tuple[str, ...]


@cache
def definitions(module: str) -> dict[str, Definition]:
    """The classes and functions of a module, such as "graphfold.metrics.binary", by name."""
    found: dict[str, Definition] = {}
    imported: dict[str, str] = {}
    for node in _parse(module).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("graphfold."):
            imported |= {alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            known = {name: definitions(imported[name]) for name in bases & imported.keys()}
            above = {name: there[name] for name, there in known.items() if name in there}
            found[node.name] = _define(node, above | found)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = _define(node, found)
    return found


def exports(package: str) -> dict[str, str]:
    """Name -> module of everything that the `__init__.py` of a package imports."""
    return {
        alias.name: str(node.module)
        for node in _parse(f"{package}.__init__").body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def strings_in(module: str, name: str) -> list[str]:
    """The strings of a tuple, or the keys of a dict, that a module calls `name`."""
    for node in _parse(module).body:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        else:
            targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            items = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
            return [str(item.value) for item in items if isinstance(item, ast.Constant)]
    raise KeyError(f"{module} has no {name}")


def _parse(module: str) -> ast.Module:
    path = _PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _define(node: ast.ClassDef | ast.FunctionDef, above: dict[str, Definition]) -> Definition:
    """A definition; a class without `__init__` takes the arguments of a base that is known."""
    maker: ast.FunctionDef | None = None
    inherited: dict[str, str | None] = {}
    is_abstract = False
    if isinstance(node, ast.FunctionDef):
        maker = node
    else:
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        maker = methods.get("__init__")
        decorators = [d for method in methods.values() for d in method.decorator_list]
        is_abstract = any(ast.unparse(d) == "abstractmethod" for d in decorators)
        bases = [above[name] for name in map(ast.unparse, node.bases) if name in above]
        inherited = bases[0].arguments if bases else {}
    return Definition(
        summary=(ast.get_docstring(node) or "").partition("\n")[0],
        arguments=inherited if maker is None else _arguments(maker.args),
        is_abstract=is_abstract,
        decorators=tuple(ast.unparse(decorator) for decorator in node.decorator_list),
    )


def _arguments(args: ast.arguments) -> dict[str, str | None]:
    named = [arg.arg for arg in (*args.posonlyargs, *args.args) if arg.arg != "self"]
    defaults = [ast.unparse(default) for default in args.defaults]
    found: dict[str, str | None] = dict.fromkeys(named)
    found |= dict(zip(named[len(named) - len(defaults) :], defaults, strict=True))
    pairs = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return found | {arg.arg: None if d is None else ast.unparse(d) for arg, d in pairs}
