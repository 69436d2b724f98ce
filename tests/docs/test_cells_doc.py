"""docs/cells.md: its blocks run one after another and print what they promise."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import torch

from graphfold.batching import Children

PAGE = (Path(__file__).parents[2] / "docs" / "cells.md").read_text(encoding="utf-8")


def test_the_blocks_run_and_print_what_they_promise():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {"__name__": "cells_page"}
    printed = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(printed):
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, "cells.md", "exec"), namespace)
    promised = re.findall(r"^print\(.*\)  # (.*)$", PAGE, re.MULTILINE)
    assert len(promised) == 6
    assert printed.getvalue().splitlines() == promised


def test_everything_in_the_table_exists():
    names = re.findall(r"children\.(\w+)", PAGE)
    attributes = {"edge", "shared", "parent", "ptr"}  # set by __init__
    assert set(names) - attributes <= set(dir(Children))
