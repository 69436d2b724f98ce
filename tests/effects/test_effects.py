"""Runs the check of every row of the table of effects."""

from __future__ import annotations

import inspect

import pytest
from effects import all_rows

ROWS = all_rows.ROWS


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, id=r.name, marks=[pytest.mark.slow] if r.slow else []) for r in ROWS],
)
def test_effect(row, request):
    arguments = {
        name: row.options[0] if name == "option" else request.getfixturevalue(name)
        for name in inspect.signature(row.check).parameters
    }
    row.check(**arguments)
