"""The reference documents every public name, on one page, from a docstring of its own."""

from __future__ import annotations

import inspect
import re
import runpy
from collections import Counter
from pathlib import Path

from graphfold.cli import main

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
PAGES = [path.read_text("utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
#: Every name of a page, as often as it is there.
LISTED = Counter(SCRIPT["listed_names"](PAGES))


def test_the_pages_have_every_public_name_and_its_docstring():
    assert SCRIPT["renewed"](PAGES) == PAGES, "run python scripts/reference.py"


def test_a_new_name_goes_behind_the_last_of_its_folder():
    without = [re.sub(r"graphfold\.layers\.(Peephole|BondReadout).*\n", "", page) for page in PAGES]
    assert without != PAGES
    renewed = SCRIPT["renewed"](without)
    assert Counter(SCRIPT["listed_names"](renewed)) == LISTED
    (page,) = [page for page in renewed if "graphfold.layers.BondReadout " in page]
    assert "\ngraphfold.layers.MeanReadout " in page


def test_a_name_that_is_gone_goes():
    line = "graphfold.batching.Cell "
    more = [page.replace(line, f"graphfold.batching.Gone  A thing.\n{line}") for page in PAGES]
    assert more != PAGES
    assert SCRIPT["renewed"](more) == PAGES


def test_nothing_is_documented_twice():
    values = [SCRIPT["find"](name) for name in LISTED]
    things = Counter(id(value) for value in values if inspect.isclass(value) or callable(value))
    assert max(things.values()) == 1
    assert max(LISTED.values()) == 1


def test_every_entry_exists_and_has_a_docstring_of_its_own():
    silent = []
    for name in LISTED:
        value = SCRIPT["find"](name)  # AttributeError: a page lists what is not there
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        if len((text or "").split()) < 4:
            silent.append(name)
    assert silent == []


def test_the_page_of_options_lists_names_and_keys(capsys):
    assert main(["list", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# Options")
    assert "\n| `dmpnn` | " in page
    assert "`configs/train.yaml`" in page
