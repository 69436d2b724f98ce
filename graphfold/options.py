"""Checks the values of a config against the function or class that they are meant for."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from graphfold.errors import did_you_mean

_PLURALS = {int: "whole numbers", float: "numbers", str: "strings"}
_NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a function or class: its named arguments."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        signature = inspect.signature(call, eval_str=True)
    except NameError:  # hints that only a type checker can see stay text, which any value fits
        signature = inspect.signature(call)
    return {name: p for name, p in signature.parameters.items() if p.kind not in variable}


def option_faults(owner: str, call: Callable[..., Any], options: Mapping[str, Any]) -> list[str]:
    """Faults of options that are meant for a function or class; none if all fit.

    Args:
        owner: whose options they are, for the messages.
        call: the function or class.
        options: what it is to be called with.
    """
    known = parameters(call)
    names = ", ".join(known) or "none"
    faults = [
        f"{owner} has no option '{key}'.{did_you_mean(key, known)} It has: {names}."
        for key in options
        if key not in known
    ]
    faults += [
        f"{owner} needs the option '{key}'. Set it."
        for key, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and key not in options
    ]
    return faults + [
        f"option '{key}' of {owner} is {value!r}, but it takes {describe(known[key].annotation)}. "
        "Correct its value."
        for key, value in options.items()
        if key in known and not fits(value, known[key].annotation)
    ]


def is_number(value: Any) -> bool:
    """True for a finite number that 64 bits can hold; true and false are none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


def fits(value: Any, hint: Any) -> bool:
    """Compares a value with a type hint; a hint that a config cannot express fits anything."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return is_number(value) and (hint is float or isinstance(value, int))
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is Path:
        return isinstance(value, str | Path)
    if _is(origin or hint, Mapping):
        return isinstance(value, Mapping)
    if _is(origin or hint, Sequence):
        return _is_list(value) and all(fits(item, part) for item in value for part in parts[:1])
    return True


def describe(hint: Any) -> str:
    """The values that a hint allows, in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(part) for part in parts)
    if origin is Literal:
        return "one of " + ", ".join(str(part) for part in parts)
    if hint is None or hint is type(None):
        return "null"
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if _is(origin or hint, Mapping):
        return "a mapping"
    if _is(origin or hint, Sequence):
        return f"a list of {_PLURALS[parts[0]]}" if parts and parts[0] in _PLURALS else "a list"
    return getattr(hint, "__name__", str(hint))


def _is(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind) and not issubclass(hint, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
