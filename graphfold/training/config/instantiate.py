"""Objects from config: `_target_` is a class or function, the other keys are its arguments."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from graphfold.errors import ConfigError, GraphfoldError, did_you_mean
from graphfold.options import describe, fits

_TARGETS = (type, types.FunctionType)

_PLAIN = (int, float, bool, str, type(None))


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
        if key not in ("_target_", "_partial_")
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


def find_target(path: str, place: str) -> Callable[..., Any]:
    """The class or function at a dotted path.

    Raises:
        ConfigError: if there is none; the message suggests the likely name.
    """
    module_name, _, name = str(path).rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{place}._target_: cannot import '{module_name}' ({error}). Correct the path."
        ) from error
    target = getattr(module, name, None)
    if not isinstance(target, _TARGETS):
        names = [key for key in dir(module) if isinstance(getattr(module, key, None), _TARGETS)]
        raise ConfigError(
            f"{place}._target_: no class '{name}' in {module_name}.{did_you_mean(name, names)}"
        )
    found: Callable[..., Any] = target
    return found


def check_targets(node: Any, place: str = "") -> list[str]:
    """The faults of the targets of a config and of their arguments; nothing is built."""
    found = targets(node, place)
    return [fault for where, item in found for fault in _check_target(item, where)]


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
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    faults = []
    hints = _hints(target)
    given = {key: value for key, value in item.items() if key not in ("_target_", "_partial_")}
    for key, value in given.items():
        if key not in parameters:
            faults.append(
                f"no key '{place}.{key}': {target.__name__} takes {', '.join(parameters)}."
                f"{did_you_mean(key, parameters)}"
            )
        elif key in hints and not isinstance(value, dict) and not fits(value, hints[key]):
            faults.append(
                f"{place}.{key} is {value!r}, but it takes {describe(hints[key])}. Correct it."
            )
    return faults


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    """The types of the arguments; none where a name is only known to type checkers."""
    try:
        called = vars(target)["__init__"] if isinstance(target, type) else target
        hints = get_type_hints(called)
        return {name: _plain_part(hint) for name, hint in hints.items()}
    except (KeyError, NameError, TypeError):
        return {}


def _plain_part(hint: Any) -> Any:
    """Of `float | Tensor` the part that a config can hold; other hints as they are."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    plain = [part for part in get_args(hint) if part in _PLAIN or get_origin(part) is Literal]
    return Union[tuple(plain)] if any(part is not type(None) for part in plain) else hint  # noqa: UP007
