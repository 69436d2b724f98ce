"""docs/python.md: its blocks run one after another on its table and print what they promise."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_blocks_run_and_print_what_they_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (table,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    Path("solubility.csv").write_text(table)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {"__name__": "python_page"}
    printed = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(printed):
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, "python.md", "exec"), namespace)
    promised = re.findall(r"print\(.*\)  # (.*)$", PAGE, re.MULTILINE)
    assert len(promised) == 10
    assert set(promised) <= set(printed.getvalue().splitlines())  # between lines of the training
    assert Path("runs/solubility/report.html").is_file()
