"""Writes the first line of each docstring beside its name in docs/reference.

python scripts/reference.py
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import get_origin

PAGES = Path(__file__).parents[1] / "docs" / "reference"
FENCE = re.compile(r"^```\{reference\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def described(line: str) -> str:
    """A line of a page: a name and its description; that of a constant or a type alias stays."""
    name = line.split()[0]
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    if not callable(value) or get_origin(value):  # its docstring is that of another type
        return line
    return f"{name}  {(value.__doc__ or '').strip().splitlines()[0]}"


def renewed(page: str) -> str:
    """A page with the first lines of today's docstrings."""
    return FENCE.sub(
        lambda found: "\n".join(["```{reference}", *map(described, found[1].splitlines()), "```"]),
        page,
    )


if __name__ == "__main__":
    for path in PAGES.glob("*.md"):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
