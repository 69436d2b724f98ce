"""Pages of HTML, from the templates in `graphfold/templates`."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, Template


def digits(value: float | None) -> str:
    """The text of a number on a page: an integer, or three significant digits."""
    if value is None:
        return "undefined"
    is_integer = isinstance(value, int) or 1000 <= abs(value) < 1e9
    return f"{value:,.0f}" if is_integer else f"{value:.3g}"


@cache
def page_template(name: str) -> Template:
    """A template, which escapes everything that is not marked as safe.

    Args:
        name: its file.
    """
    pages = Environment(loader=PackageLoader("graphfold"), autoescape=True, trim_blocks=True)
    pages.filters["digits"] = digits
    return pages.get_template(name)
