"""docs/cells.md: its blocks run one after another and print what they promise."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphfold
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


@pytest.mark.slow  # mypy reads torch anew
def test_the_blocks_pass_mypy_strict_and_a_network_gives_states(tmp_path):
    package = Path(graphfold.__file__).parent
    assert (package / "py.typed").exists()
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "graphfold").symlink_to(package)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    page = tmp_path / "cells_page.py"
    page.write_text("\n".join([*blocks, "reveal_type(network(batch, x))\n"]), encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--cache-dir=cache"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, page.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(tmp_path / "packages"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    revealed, last = done.stdout.strip().splitlines()[-2:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'Revealed type is "graphfold.batching.states.States"' in revealed, last
