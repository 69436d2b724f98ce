"""docs/engine.md: its blocks run one after another and print what they promise."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def test_the_blocks_run_and_print_what_they_promise():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {"__name__": "engine_page"}
    printed = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "engine.md", "exec"), namespace)
    promised = re.findall(r"^(?:print\(.*)?\)  # (.*)$", PAGE, re.MULTILINE)
    assert len(promised) == 6
    assert printed.getvalue().splitlines() == promised


def test_every_file_that_it_names_is_there():
    links = re.findall(r"\]\((\.\./[^)#]+)\)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
