"""The pages on use from Python: their blocks run in order and print what they promise."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "promises", "makes"),
    [("python", 9, ["solubility", "short"]), ("training_loop", 2, []), ("sklearn", 5, [])],
)
def test_the_blocks_run_and_print_what_they_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, promises: int, makes: list[str]
) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    if name == "sklearn":
        pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    for table in re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        Path("solubility.csv").write_text(table)
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    namespace: dict[str, object] = {"__name__": f"{name}_page"}
    printed = io.StringIO()
    with torch.random.fork_rng(), contextlib.redirect_stdout(printed):
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, f"{name}.md", "exec"), namespace)
    promised = re.findall(r"print\(.*\)  # (.*)$", page, re.MULTILINE)
    assert len(promised) == promises
    lines = printed.getvalue().splitlines()
    assert set(promised) <= set(lines)  # between lines of the training
    numbers = re.compile(r"-?\d+\.\d+")  # that training decides
    found = [numbers.sub("0", line) for line in lines]
    for tree in re.findall(r"^```output\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        assert [line for line in tree.splitlines() if numbers.sub("0", line) not in found] == []
    assert sorted(Path("runs").glob("*/report.html")) == [
        Path("runs") / made / "report.html" for made in sorted(makes)
    ]
