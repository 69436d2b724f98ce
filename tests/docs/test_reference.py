"""The reference documents every public name, on one page, from a docstring of its own."""

from __future__ import annotations

import inspect
import pkgutil
import re
import runpy
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graphfold
from graphfold import errors
from graphfold.cli import main
from graphfold.registry import ADAPTERS

PAGES = Path(__file__).parents[2] / "docs" / "reference"
FENCE = re.compile(r"^```\{reference\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: Every name as often as a page has it.
LISTED = Counter(
    line.split()[0]
    for page in sorted(PAGES.glob("*.md"))
    for body in FENCE.findall(page.read_text(encoding="utf-8"))
    for line in body.splitlines()
)


def packages_with_names() -> list[str]:
    """graphfold and the packages in it that list public names."""
    inside = [f"graphfold.{m.name}" for m in pkgutil.iter_modules(graphfold.__path__) if m.ispkg]
    names = ["graphfold", *inside]
    return [name for name in names if getattr(import_module(name), "__all__", ())]


def resolve(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


@pytest.mark.parametrize("package", packages_with_names())
def test_every_public_name_of_a_package_is_on_one_page(package):
    names = [f"{package}.{name}" for name in import_module(package).__all__]
    assert [name for name in names if LISTED[name] != 1] == []


def test_every_adapter_and_every_error_is_on_one_page():
    adapters = [path.replace(":", ".") for path in ADAPTERS.paths.values()]
    raised = [
        f"graphfold.errors.{name}"
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.GraphfoldError)
    ]
    assert [name for name in {*adapters, *raised} if LISTED[name] != 1] == []


def test_nothing_is_documented_twice():
    values = [resolve(name) for name in LISTED]
    things = Counter(id(value) for value in values if inspect.isclass(value) or callable(value))
    assert max(things.values()) == 1
    assert max(LISTED.values()) == 1


def test_every_entry_exists_and_has_a_docstring_of_its_own():
    silent = []
    for name in LISTED:
        value = resolve(name)  # AttributeError: a page lists what is not there
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        if len((text or "").split()) < 4:
            silent.append(name)
    assert silent == []


def test_the_pages_say_what_each_name_is():
    renew = runpy.run_path(str(PAGES.parents[1] / "scripts" / "reference.py"))["renewed"]
    for page in PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert text == renew(text), "run python scripts/reference.py"


def test_the_page_of_options_lists_names_and_keys(capsys):
    assert main(["list", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# Options")
    assert "\n| `dmpnn` | " in page
    assert "`configs/train.yaml`" in page
