"""All rows of the table of effects, collected from the files `*_options.py`."""

from importlib import import_module
from pathlib import Path

from effects.table import Row

ROWS: list[Row] = [
    row
    for path in sorted(Path(__file__).parent.glob("*_options.py"))
    for row in import_module(f"effects.{path.stem}").ROWS
]
