"""Objects from config: `_target_` is a class or function, the other keys are its arguments."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from graphfold.errors import ConfigError, GraphfoldError
from graphfold.options import option_faults
from graphfold.registry import import_part

#: The keys of a node that are no arguments, as Hydra has them; lists and mappings are always plain.
KEYS = ("_target_", "_partial_", "_convert_")


def instantiate(node: Any, place: str = "") -> Any:
    """Builds what a config describes, innermost first.

    Hydra's own `instantiate` is not used, because it would also fill in a `${...}` that a stored
    config hides in a string, and so make targets that no check has seen.

    Args:
        node: a resolved config: dicts, lists and values.
        place: the key of `node`, for messages.

    Raises:
        ConfigError: if a target is no class or function, or its arguments do not fit.
    """
    if isinstance(node, list):
        return [instantiate(item, f"{place}[{index}]") for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    values = {
        key: instantiate(value, f"{place}.{key}".lstrip("."))
        for key, value in node.items()
        if key not in KEYS
    }
    if "_target_" not in node:
        return values
    target = find_target(node["_target_"], place)
    if node.get("_partial_"):
        return partial(target, **values)
    return call(target, place, **values)


def call(target: Callable[..., Any], place: str, **arguments: Any) -> Any:
    """Calls a class or function of a config, or a partial of one.

    Raises:
        ConfigError: if its arguments do not fit.
    """
    try:
        return target(**arguments)
    except GraphfoldError:
        raise
    except (TypeError, ValueError) as error:
        name = getattr(target, "func", target).__name__
        fault = str(error).rstrip(".")
        raise ConfigError(f"{place}: {name} refuses its arguments: {fault}.") from error


def find_target(path: Any, place: str) -> Callable[..., Any]:
    """The class or function at a dotted path.

    Raises:
        ConfigError: if there is none; the message suggests the likely name.
    """
    setting = f"{place}._target_"
    if ":" in str(path):
        raise ConfigError(f"{setting}: '{path}' has a colon. Write package.module.name.")
    target = import_part(str(path), setting)
    if not isinstance(target, type | types.FunctionType):
        kind = type(target).__name__
        raise ConfigError(f"{setting}: '{path}' is a {kind}. Name a class, or a Python function.")
    return target


def check_targets(node: Any, place: str = "") -> list[str]:
    """The faults of the targets of a config and of their arguments; nothing is built."""
    return [fault for where, item in targets(node, place) for fault in _check_target(item, where)]


def targets(node: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every dict with a `_target_`, with its key."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield place, node
        for key, value in node.items():
            yield from targets(value, f"{place}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from targets(value, f"{place}[{index}]")


def _check_target(item: Mapping[str, Any], place: str) -> list[str]:
    try:
        target = find_target(item["_target_"], place)
    except ConfigError as error:
        return [error.message]
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(target).parameters.values()):
        return []
    options = {key: value for key, value in item.items() if key not in KEYS}
    return option_faults(f"{place} ({target.__name__})", target, options, place)
