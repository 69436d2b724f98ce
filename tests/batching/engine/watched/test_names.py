"""The names in code are those that `dis` finds."""

from __future__ import annotations

import dis
import types
from typing import Any

import pytest
from torch import nn
from watch_cells import (
    SCALE,
    SIZE,
    TABLE,
    Plain,
    by_call,
    closing,
)

from graphfold.batching.engine.watched.names import CodeNames

# --- Names in code


def with_names(x: Any) -> Any:
    import os.path as path

    class Inner:
        size = SIZE

    return [SCALE for _ in x if (lambda: TABLE.get("scale"))()], path.join, Inner.size, len(x)


@pytest.mark.parametrize(
    "function", [with_names, by_call, closing(1), nn.LSTM.forward, Plain.__init__]
)
def test_names_are_those_that_dis_finds(function: Any) -> None:
    wanted, stack = set(), [function.__code__]
    while stack:
        code = stack.pop()
        found = dis.get_instructions(code)
        loads = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
        wanted |= {step.argval for step in found if step.opname in loads}
        stack += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    names = CodeNames.of(function.__code__)
    assert names.loaded == wanted
    assert names.loaded | names.imported <= names.named


def test_names_in_long_code() -> None:
    lines = "\n".join(f"    a{n}" for n in range(600))
    space: dict[str, Any] = {}
    exec(f"def function():\n{lines}", space)
    assert CodeNames.of(space["function"].__code__).loaded == {f"a{n}" for n in range(600)}
