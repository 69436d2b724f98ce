"""Functions of any kind are tried here, also those that cannot be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores the warnings of cells that are not compiled."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(r"ignore:\w+Cell is not compiled"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore:.*Cell do(es)? not run as native code")
            )
