"""Checks values of a config against type hints: the options of a call, and the keys of a section.

A section is a dataclass, whose keys are its fields, or a TypedDict, which may have further keys. A
hint says all that a value may be, `Annotated[int, Limits(least=1)] | None`, so what is wrong with
one is told in the same words wherever it stands.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from graphfold.errors import ConfigError, did_you_mean

Section = TypeVar("Section")

_PLURALS = {int: "whole numbers", float: "numbers", str: "strings"}
_NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


@dataclass(frozen=True)
class Limits:
    """Limits of a value beside its type: `Annotated[int, Limits(least=1)]`.

    Args:
        least: the smallest number.
        most: the largest number.
        above: what a number is larger than.
        below: what a number is smaller than.
        choices: the only strings.
        is_local: whether a path is one of this machine, and no address such as `s3://bucket/x`.
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: tuple[str, ...] = ()
    is_local: bool = False

    def allows(self, value: Any) -> bool:
        """True for a value of the type that is within the limits."""
        if self.is_local:
            return not is_address(value)
        if self.choices:
            return value in self.choices
        return bool(self.least <= value <= self.most and self.above < value < self.below)

    def __str__(self) -> str:
        words = f" from {self.least:g}" if self.least > -math.inf else ""
        words += f" above {self.above:g}" if self.above > -math.inf else ""
        words += f" and below {self.below:g}" if self.below < math.inf else ""
        words += f" to {self.most:,g}" if self.most < math.inf else ""
        return words + " on" if self.least > -math.inf and self.most == math.inf else words


From0 = Annotated[int, Limits(least=0)]
From1 = Annotated[int, Limits(least=1)]
LocalPath: TypeAlias = Annotated[str | Path, Limits(is_local=True)]

#: How an address begins; `Path` makes one slash of two, and drives of Windows have one letter.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_address(value: Any) -> bool:
    """True for an address such as `s3://bucket/x`, as text or as the path that was made of it."""
    return isinstance(value, str | Path) and _SCHEME.match(str(value)) is not None


def refuse_address(value: Any, option: str) -> None:
    """Raises ConfigError for an address in an option that takes none."""
    if is_address(value):
        raise ConfigError(f"{option} is {str(value)!r}, but {_expected(value, LocalPath)}")


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
    faults = [_unknown(owner, key, known) for key in options if key not in known]
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
            faults.append(f"{option} is {value!r}, but {_expected(value, hint)}")
    return faults


def read_section(kind: type[Section], values: Mapping[str, Any], place: str = "") -> Section:
    """A section of a config as an object.

    Args:
        kind: a dataclass. A section in it becomes an object, too, and a list of them a tuple.
        values: key -> value.
        place: the key of the section in the config.

    Raises:
        ConfigError: naming every fault.
    """
    faults = [*section_faults(kind, values, place)]
    if faults:
        raise ConfigError("\n".join(faults))
    return make_section(kind, values)


def section_faults(kind: type, values: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """The faults of the keys of a section and of their values; "???" is none."""
    known = _keys(kind)
    for key in values:
        if key not in known and not is_typeddict(kind):
            yield _unknown(place or "the config", str(key), known)
    for key, (hint, is_needed) in known.items():
        where = f"{place}.{key}".lstrip(".")
        if key not in values:
            if is_needed:
                yield f"there is no key '{where}' in the config."
        elif values[key] == "???":
            yield f"{where} has no value. Add {where}=VALUE."
        elif not _is_left_out(values[key], hint, is_needed):
            yield from value_faults(values[key], hint, where)


def make_section(kind: type[Section], values: Mapping[str, Any]) -> Section:
    """A section of values without a fault as an object, see `read_section`."""
    arguments = {}
    for key, (hint, is_needed) in _keys(cast("type", kind)).items():
        if key not in values or _is_left_out(values[key], hint, is_needed):
            continue
        value, (part, is_list) = values[key], _section_in(hint)
        if part is not None and value is not None and not is_typeddict(part):
            value = tuple(make_section(part, item) for item in (value if is_list else [value]))
            value = value if is_list else value[0]
        arguments[key] = value
    return kind(**arguments)


def refuse_unread(option: str, value: Any, default: Any, beside: str, remedy: str) -> None:
    """Refuses a value that nothing reads beside the other options.

    Args:
        option: the name of the option.
        value: its value.
        default: the value that asks for nothing, which is allowed.
        beside: the other option under which it is not read, such as "data.split=random".
        remedy: what to do instead, without a full stop.

    Raises:
        ConfigError: if the value is another than the default.
    """
    if as_written(value) != as_written(default):
        raise ConfigError(
            f"{option}={as_written(value)} is not read with {beside}. {remedy}, or leave {option} "
            f"at {as_written(default)}."
        )


def as_written(value: Any) -> str:
    """A value as a config has it."""
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(list(value) if _is_list(value) else value, default=str)


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
    if origin is Annotated:
        return fits(value, parts[0]) and all(limits.allows(value) for limits in _limits(parts))
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return is_number(value) and (hint is float or isinstance(value, int))
    if hint in (bool, str):
        return isinstance(value, hint)
    if hint is Path:
        return isinstance(value, str | Path)
    if _is(origin or hint, Mapping):
        return isinstance(value, Mapping) and all(
            fits(item, part) for item in value.values() for part in parts[1:]
        )
    if _is(origin or hint, Sequence):
        return _is_list(value) and all(fits(item, part) for item in value for part in parts[:1])
    return True


def describe(hint: Any) -> str:
    """The values that a hint allows, in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(part) for part in _in_configs(parts))
    if hint == LocalPath:
        return "a path on this machine (no address)"
    if origin is Annotated:
        return describe(parts[0]) + "".join(map(str, _limits(parts)))
    if origin is Literal:
        return "one of " + ", ".join(str(part) for part in parts)
    if hint is None or hint is type(None):
        return "null"
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if _is(origin or hint, Mapping) or _is_section(hint):
        return "a mapping"
    if _is(origin or hint, Sequence):
        return f"a list of {_PLURALS[parts[0]]}" if parts and parts[0] in _PLURALS else "a list"
    return getattr(hint, "__name__", str(hint))


def _unknown(owner: str, key: str, known: Mapping[str, Any]) -> str:
    names = ", ".join(known) or "none"
    return f"{owner} has no option '{key}'.{did_you_mean(key, known)} It has: {names}."


def _expected(value: Any, hint: Any) -> str:
    """The rest of a sentence about a value that does not fit a hint."""
    words = _choices(hint)
    if words is None or {*words} <= {"true", "false", "null"}:
        return f"it must be {describe(hint)}."
    return f"it is one of {', '.join(words)}.{did_you_mean(str(value), words)}"


def _choices(hint: Any) -> list[str] | None:
    """The values of a hint that allows only a few, as a config writes them."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        several = [_choices(part) for part in parts]
        return None if None in several else [word for words in several for word in words or ()]
    if origin is Annotated:
        return [word for limits in _limits(parts) for word in limits.choices] or None
    if origin is Literal:
        return [str(part) for part in parts]
    return {bool: ["true", "false"], type(None): ["null"]}.get(hint)


def value_faults(value: Any, hint: Any, place: str) -> Iterator[str]:
    """The faults of a value, and of the sections in it."""
    part, is_list = _section_in(hint)
    if part is None or (value is None and type(None) in get_args(hint)):
        if not fits(value, hint):
            yield f"{place} is {value!r}, but {_expected(value, hint)}"
    elif is_list and _is_list(value):
        for number, item in enumerate(value):
            yield from value_faults(item, part, f"{place}[{number}]")
    elif not is_list and isinstance(value, Mapping):
        yield from section_faults(part, value, place)
    else:
        yield f"{place} is {value!r}, but it must be {describe(hint)}."


@functools.cache  # evaluating hints takes longer than comparing values with them
def _keys(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """The keys of a section: hint, and whether it needs the key."""
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {key: (hint, key in kind.__required_keys__) for key, hint in hints.items()}
    options = parameters(kind).items()
    return {key: (p.annotation, p.default is inspect.Parameter.empty) for key, p in options}


def _is_left_out(value: Any, hint: Any, is_needed: bool) -> bool:
    """True for null in place of a section that need not be there."""
    return value is None and not is_needed and _section_in(hint)[0] is not None


def _section_in(hint: Any) -> tuple[Any, bool]:
    """The section in a hint or None, and whether the hint is a list of sections."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next((pair for pair in map(_section_in, parts) if pair[0]), (None, False))
    if _is(origin, Sequence):
        return _section_in(parts[0])[0], True
    return (hint, False) if _is_section(hint) else (None, False)


def _is_section(hint: Any) -> bool:
    return is_typeddict(hint) or hasattr(hint, "__dataclass_fields__")


def _limits(parts: Sequence[Any]) -> list[Limits]:
    """The limits among the arguments of `Annotated`."""
    return [part for part in parts[1:] if isinstance(part, Limits)]


def _in_configs(parts: Sequence[Any]) -> Sequence[Any]:
    """The parts of a union that a config can hold: `float` of `float | Tensor`."""
    plain = [part for part in parts if not fits(_Other(), part)]
    return plain if set(plain) - {type(None)} else parts


class _Other:
    """A value that no config has."""


def _is(hint: Any, kind: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, kind) and not issubclass(hint, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
