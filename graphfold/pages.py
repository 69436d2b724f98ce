"""Pages of HTML, from the templates in `graphfold/templates`."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, Template


def digits(value: float | None) -> str:
    """A number of a page: three digits of a fraction, a whole number as it is."""
    if value is None:
        return "undefined"
    whole = isinstance(value, int) or 1000 <= abs(value) < 1e9
    return f"{value:,.0f}" if whole else f"{value:.3g}"


@cache
def page_template(name: str) -> Template:
    """A template, which escapes whatever is not marked as safe.

    Args:
        name: its file.
    """
    pages = Environment(loader=PackageLoader("graphfold"), autoescape=True, trim_blocks=True)
    pages.filters["digits"] = digits
    return pages.get_template(name)
