"""Every relative link of a page leads to a file of the repository and to a heading in it."""

from __future__ import annotations

import json
import re
import runpy
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
    }
    - {ROOT / "docs" / "options.md"}  # made by `make docs`
)
LINK = re.compile(r"\]\(<?([^)\s>]+)")


def prose(path: Path) -> str:
    """A page, or the text cells of a notebook, without its code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.sub(r"^(```+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)


@lru_cache
def anchors(path: Path) -> frozenset[str]:
    """The names that GitHub gives to the headings of a page."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*)$", prose(path), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        taken = found.count(name)
        found += [name] if not taken else [name, f"{name}-{taken}"]
    return frozenset(found)


def faults(path: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    text = re.sub(r"``.*?``|`[^`\n]*`", "", prose(path))
    dead = []
    for target in LINK.findall(text):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        goal = (path.parent / name).resolve() if name else path
        if not goal.exists() or not goal.is_relative_to(ROOT):
            dead.append(target)
        elif anchor and anchor not in anchors(goal):
            dead.append(f"{target} (headings: {', '.join(sorted(anchors(goal)))})")
    return dead


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_of_the_page_is_dead(path):
    assert faults(path) == []


def test_every_page_is_in_the_side_bar_of_the_site():
    captions = runpy.run_path(str(ROOT / "docs" / "conf.py"))["navigation"]
    listed = [name for names in captions.values() for name in names]
    pages = [str(path.relative_to(ROOT).with_suffix("")) for path in PAGES]
    assert sorted(["README", *listed]) == sorted(["docs/options", *pages])
