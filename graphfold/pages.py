"""Pages of HTML, from the templates in `graphfold/templates`."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, Template


@cache
def page_template(name: str) -> Template:
    """A template, which escapes whatever is not marked as safe.

    Args:
        name: its file.
    """
    loader = PackageLoader("graphfold")
    return Environment(loader=loader, autoescape=True, trim_blocks=True).get_template(name)
