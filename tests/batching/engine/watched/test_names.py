"""The names in code: those it looks up, those it imports, and all that it says."""

from __future__ import annotations

import os
from typing import Any

from watch_cells import SCALE, SIZE, TABLE, by_call, closing

from graphfold.batching.engine.watched.code import names_of


def with_names(x: Any) -> Any:
    import os.path as path

    class Inner:
        size = SIZE

    return [SCALE for _ in x if (lambda: TABLE.get("scale"))()], path.join, Inner.size, len(x)


def test_names_of_a_function_and_of_those_within_it() -> None:
    names = names_of(with_names.__code__)
    assert names.loaded == {"SIZE", "SCALE", "TABLE", "len", "__name__"}
    assert names.imported == {"os.path"}
    assert names.named >= {*names.loaded, "os.path", "get", "scale", "join", "size"}
    assert names.builtins_of(with_names) == {"len"}
    assert {module for _, module in names.modules_of(with_names)} == {os, os.path}


def test_what_is_no_global_is_not_loaded() -> None:
    assert names_of(closing(1).__code__).loaded == frozenset()
    assert "by_global" in names_of(by_call.__code__).loaded


def test_names_in_long_code() -> None:
    lines = "\n".join(f"    a{n}" for n in range(600))
    space: dict[str, Any] = {}
    exec(f"def function():\n{lines}", space)
    assert names_of(space["function"].__code__).loaded == {f"a{n}" for n in range(600)}
