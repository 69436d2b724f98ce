"""Checks the values of a config against the function or class that they are meant for."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def option_faults(
    owner: str, call: Callable[..., Any], options: Mapping[str, Any], place: str | None = None
) -> list[str]:
    """Faults of options that are meant for a function or class; none if all fit.

    Args:
        owner: whose options they are, for the messages.
        call: the function or class.
        options: what it is to be called with.
        place: the key of the options in a config, where others may be added before the call, and
            a mapping with a `_target_` becomes an object.
    """
    known = parameters(call)
    names = ", ".join(known) or "none"
    faults = [
        f"{owner} has no option '{key}'.{did_you_mean(key, known)} It has: {names}."
        for key in options
        if key not in known
    ]
    if place is None:
        faults += [
            f"{owner} needs the option '{key}'. Set it."
            for key, parameter in known.items()
            if parameter.default is inspect.Parameter.empty and key not in options
        ]
    for key in [key for key in options if key in known]:
        value, hint = options[key], known[key].annotation
        is_object = place is not None and isinstance(value, Mapping) and "_target_" in value
        if not is_object and not fits(value, hint):
            option = f"option '{key}' of {owner}" if place is None else f"{place}.{key}"
            fault = f"is {value!r}, but it takes {describe(hint)}. Correct its value."
            faults.append(f"{option} {fault}")
    return faults


def is_number(value: Any) -> bool:
    """True for a finite number that 64 bits can hold; true and false are none."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


def fits(value: Any, hint: Any) -> bool:
    """Compares a value with a type hint; a hint that a config cannot express fits anything."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in _in_configs(parts))
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
        return " or ".join(describe(part) for part in _in_configs(parts))
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


def _in_configs(parts: Sequence[Any]) -> Sequence[Any]:
    """Of `float | Tensor` the part that a config can hold, if there is one."""
    plain = [part for part in parts if not fits(_Other(), part)]
    return plain if set(plain) - {type(None)} else parts


class _Other:
    """A value that no config has."""


@dataclass(frozen=True)
class Rule:
    """The values that one key of a config may have.

    Args:
        kind: int, float, bool, str, dict, list, or list[str].
        least: the smallest number.
        most: the largest number.
        choices: the only strings.
        optional: whether null is allowed.
        needed: whether every run has the key.
    """

    kind: Any
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    needed: bool = False

    def fault(self, value: Any) -> str | None:
        """The fault of a value, or None."""
        if value is None and self.optional:
            return None
        if self.choices and value not in self.choices:
            hint = did_you_mean(str(value), self.choices)
            return f"it is one of {', '.join(self.choices)}.{hint}"
        if not fits(value, self.kind) or (self.least is not None and value < self.least):
            return f"it must be {self}."
        if self.most is not None and value > self.most:
            return f"it must be {self.most:,g} at most."
        return None

    def __str__(self) -> str:
        least = "" if self.least is None else f" from {self.least:g} on"
        return describe(self.kind) + least + (" or null" if self.optional else "")


def rule_faults(
    rules: Mapping[str, Rule], config: Mapping[str, Any], place: str = ""
) -> Iterator[str]:
    """The faults of the values of a config, and of keys that it lacks; "???" is told elsewhere.

    Args:
        rules: key -> its values; a key such as data.seed is one of a section, if that is there.
        config: the config, or a part of it.
        place: the key of that part.
    """
    for key, rule in rules.items():
        above, _, name = key.rpartition(".")
        section = config.get(above) if above else config
        where = f"{place}.{key}".lstrip(".")
        if not isinstance(section, Mapping):
            continue
        if name not in section:
            if rule.needed:
                yield f"there is no key '{where}' in the config."
        elif section[name] != "???" and (fault := rule.fault(section[name])):
            yield f"{where} is {section[name]!r}, but {fault}"


def _is(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind) and not issubclass(hint, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
