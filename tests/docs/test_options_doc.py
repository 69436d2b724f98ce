"""docs/options.md is what the code says today."""

from __future__ import annotations

from pathlib import Path

from graphfold.training.config.listing import options_page

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_is_current() -> None:
    found = PAGE.read_text(encoding="utf-8")
    remedy = "docs/options.md is out of date. Run: graphfold list --markdown > docs/options.md"
    assert found == options_page() + "\n", remedy
