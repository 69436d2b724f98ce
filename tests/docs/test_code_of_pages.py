"""Pages with code: their blocks run in order, in one folder, and print what they promise."""

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
from thinned import thinned

import graphfold
from graphfold.batching import Children

DOCS = Path(__file__).parents[2] / "docs"
#: Page -> how many lines it promises, and which runs it makes.
PAGES = {
    "cells": (10, []),
    "engine": (6, []),
    "python": (9, ["short", "solubility"]),
    "sklearn": (5, []),
    "training_loop": (2, []),
}


def text_of(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", thinned(PAGES, ["cells", "engine"]))  # others train
def test_the_blocks_run_and_print_what_they_promise(name, tmp_path, monkeypatch):
    page, (num_promised, runs) = text_of(name), PAGES[name]
    monkeypatch.chdir(tmp_path)
    for table in blocks(page, "text") if name in ("python", "training_loop") else []:
        Path("solubility.csv").write_text(table)
    namespace: dict[str, object] = {"__name__": f"{name}_page"}
    printed = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(printed):
        torch.manual_seed(0)
        for block in blocks(page, "python"):
            exec(compile(block, f"{name}.md", "exec"), namespace)
    promised = re.findall(r"^ *(?:print\(.*)?\)  # (.*)$", page, re.MULTILINE)
    assert len(promised) == num_promised
    lines = printed.getvalue().splitlines()
    assert [line for line in lines if line in promised] == promised  # between lines of training
    numbers = re.compile(r"-?\d+\.\d+")  # that training decides
    found = [numbers.sub("0", line) for line in lines]
    for tree in blocks(page, "output"):
        assert [line for line in tree.splitlines() if numbers.sub("0", line) not in found] == []
    assert sorted(path.parent.name for path in Path("runs").glob("*/report.html")) == runs


def test_everything_in_the_table_of_children_exists():
    names = re.findall(r"children\.(\w+)", text_of("cells"))
    attributes = {"edge", "shared", "parent", "ptr"}  # set by __init__
    assert set(names) - attributes <= set(dir(Children))


@pytest.mark.slow  # mypy reads torch anew
def test_the_blocks_pass_mypy_strict_and_a_network_gives_states(tmp_path):
    package = Path(graphfold.__file__).parent
    assert (package / "py.typed").exists()
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "graphfold").symlink_to(package)
    page = tmp_path / "cells_page.py"
    code = [*blocks(text_of("cells"), "python"), "reveal_type(network(dag))\n"]
    page.write_text("\n".join(code), encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--cache-dir=cache"]
    options.append("--disable-error-code=import-untyped")  # torch_geometric has no types
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, page.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(tmp_path / "packages"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    revealed, last = done.stdout.strip().splitlines()[-2:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'Revealed type is "graphfold.batching.states.States"' in revealed, last
