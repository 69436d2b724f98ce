"""Imports what a setting names by its dotted path: an adapter, a split, a reader of files."""

from __future__ import annotations

import importlib
from typing import Any

from graphfold.errors import ConfigError


def import_path(path: str, owner: str) -> Any:
    """The attribute of a module at "package.module.name" (or "package.module:name").

    Args:
        path: the dotted path.
        owner: what names it, for messages.

    Returns:
        The attribute; None if the module has none of that name.

    Raises:
        ConfigError: if there is no such module, or a module that it imports is missing.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f"{owner}: '{path}' is no dotted path. Give one as package.module.name.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if not f"{module_name}.".startswith(f"{missing}."):
            remedy = f"Install '{missing}', which it imports."
        else:
            remedy = "Correct the path, or install the package that holds it."
        raise ConfigError(f"{owner}: there is no module '{missing}'. {remedy}") from error
    return getattr(module, name, None)
