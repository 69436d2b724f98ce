"""The notebooks are stored without outputs, which `make docs` makes; their code is Python."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_outputs(path):
    cells = code_cells(path)
    assert len(cells) > 4
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(
        cells
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_is_python(path):
    for cell in code_cells(path):
        lines = [line for line in cell["source"] if not line.startswith("!")]
        ast.parse("".join(lines))
