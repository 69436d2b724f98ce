"""Every option has a row, and every row is about an option."""

from __future__ import annotations

from effects import all_rows, walk


def test_every_option_has_a_row():
    options = walk.options()
    stated = {name for row in all_rows.ROWS for name in row.options}
    missing = sorted(options - stated)
    assert not missing, f"write rows in tests/effects for: {', '.join(missing)}"


def test_every_row_is_about_an_option():
    stated = {name for row in all_rows.ROWS for name in row.options}
    assert sorted(stated - walk.options()) == []


def test_every_key_of_a_config_is_an_option():
    assert walk.unknown_keys() == []
