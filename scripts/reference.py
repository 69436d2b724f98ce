"""Writes the public names and the first lines of their docstrings on the pages of docs/reference.

A name that is on no page goes behind the last name of its folder; whoever finds a better place
moves the line, and it stays there. A name whose object is gone goes.

python scripts/reference.py
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

import graphfold
from graphfold import errors
from graphfold.registry import ADAPTERS

PAGES = Path(__file__).parents[1] / "docs" / "reference"
FENCE = re.compile(r"^```\{reference\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def public_names() -> list[str]:
    """The names in `__all__` of graphfold and its packages, the adapters, and the errors."""
    inside = [f"graphfold.{m.name}" for m in pkgutil.iter_modules(graphfold.__path__) if m.ispkg]
    listed = [
        f"{package}.{name}"
        for package in ("graphfold", *inside)
        for name in getattr(import_module(package), "__all__", ())
    ]
    adapters = [path.replace(":", ".") for path in ADAPTERS.paths.values()]
    raised = [
        f"graphfold.errors.{name}"
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.GraphfoldError)
    ]
    return [*listed, *adapters, *raised]


def listed_names(pages: Sequence[str]) -> list[str]:
    """The names on some pages, in order."""
    bodies = [body for page in pages for body in FENCE.findall(page)]
    return [line.split()[0] for body in bodies for line in body.splitlines()]


def find(name: str) -> Any:
    """The object of a name; AttributeError where there is none."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def exists(name: str) -> bool:
    """True if a name on a page still has an object."""
    try:
        find(name)
    except (AttributeError, ImportError):
        return False
    return True


def folder(name: str) -> str:
    """The package in whose modules an object is defined; a constant has none."""
    return str(getattr(find(name), "__module__", "")).rpartition(".")[0]


def described(line: str) -> str:
    """A line of a page: a name and its description; that of a constant or a type alias stays."""
    name = line.split()[0]
    value = find(name)
    if not callable(value) or get_origin(value):  # its docstring is that of another type
        return line
    return f"{name}  {(value.__doc__ or '').strip().splitlines()[0]}"


def described_block(block: re.Match[str]) -> str:
    """A block of a page with all its lines renewed, without those whose objects are gone."""
    lines = [line for line in block[1].splitlines() if exists(line.split()[0])]
    return "\n".join(["```{reference}", *map(described, lines), "```"])


def renewed(pages: Sequence[str]) -> list[str]:
    """The pages with every public name and today's docstrings."""
    names = list(filter(exists, listed_names(pages)))
    for name in public_names():
        if name in names:
            continue
        neighbours = [other for other in names if folder(other) == folder(name)]
        if not neighbours:
            sys.exit(f"{name}: no page has a name of its folder. Put it on one of {PAGES}.")
        last = re.compile(rf"^{re.escape(neighbours[-1])}(?=\s).*", re.MULTILINE)
        pages = [last.sub(rf"\g<0>\n{name}", page) for page in pages]
        names.append(name)
    return [FENCE.sub(described_block, page) for page in pages]


if __name__ == "__main__":
    paths = sorted(PAGES.glob("*.md"))
    for path, text in zip(paths, renewed([path.read_text("utf-8") for path in paths]), strict=True):
        path.write_text(text, encoding="utf-8")
