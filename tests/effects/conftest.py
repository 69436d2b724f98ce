"""Fixtures for the checks of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphfold.dag import TypedDAG

pytest.register_assert_rewrite("effects")

from effects.lab import Lab, read  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Tiny data and runs, shared by all rows."""
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def graphs(tmp_path: Path) -> Callable[..., TypedDAG]:
    """`graphs(adapter, text, **options)`: the graphs of a text, read as a file."""

    def read_text(adapter: str, text: str, name: str = "data.txt", **options: Any) -> TypedDAG:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read(path, adapter, **options).dag

    return read_text
