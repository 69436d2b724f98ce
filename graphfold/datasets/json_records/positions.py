"""Positions: what stands at each place of a JSON record, as a tree that people can edit.

A place is one of: a number, a category, text, a time, an IP address, a list whose items are alike,
an object with known keys, a map whose keys are data, or several of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphfold.datasets.files.json_documents import finite_number
from graphfold.datasets.files.json_path import join_path
from graphfold.errors import ConfigError


@dataclass(frozen=True)
class Number:
    """A number; `mean` and `std` bring its values near zero."""

    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True)
class Category:
    """One of a few values: strings, or true and false."""

    values: tuple[str | bool, ...]


@dataclass(frozen=True)
class Text:
    """A string of any characters."""


@dataclass(frozen=True)
class Time:
    """A date and time as text; `mean` and `std`, in seconds since 1970, bring it near zero."""

    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True)
class Address:
    """An IP address as text."""


@dataclass(frozen=True)
class Items:
    """A list of any length, whose items are alike."""

    items: Position


@dataclass(frozen=True)
class Fields:
    """An object with known keys; each may be absent."""

    fields: Mapping[str, Position]


@dataclass(frozen=True)
class Entries:
    """An object whose keys are data, such as identifiers; all values are alike."""

    values: Position


@dataclass(frozen=True)
class Mixed:
    """A place where values of several kinds stand."""

    kinds: tuple[Position, ...]


Position: TypeAlias = Number | Category | Text | Time | Address | Items | Fields | Entries | Mixed

#: The kind of a position in the editable form.
KINDS: Mapping[type, str] = {
    Number: "number",
    Category: "category",
    Text: "text",
    Time: "time",
    Address: "address",
    Items: "list",
    Fields: "object",
    Entries: "map",
    Mixed: "mixed",
}


def kind_of(position: Position) -> str:
    """The name of the kind."""
    return KINDS[type(position)]


def name_in_mixed(position: Position) -> str:
    """The name of one kind of a mixed place; true and false may stand there beside strings."""
    if isinstance(position, Category) and isinstance(position.values[0], bool):
        return "bool"
    return kind_of(position)


def children(position: Position, path: str) -> Iterator[tuple[str, Position]]:
    """The places right inside a place, with their names; see `place_of_key`."""
    if isinstance(position, Items):
        yield f"{path}[*]", position.items
    elif isinstance(position, Fields):
        for key, inner in position.fields.items():
            yield place_of_key(path, key), inner
    elif isinstance(position, Entries):
        yield f"{path}{{*}}", position.values
    elif isinstance(position, Mixed):
        for inner in position.kinds:
            yield f"{path}:{name_in_mixed(inner)}", inner


def place_of_key(path: str, key: str) -> str:
    """The name of a place under another: $/user/name.

    It is the name of a node type, and so of modules, which torch allows no full stop.
    """
    return f"{path}/{key.replace('.', _DOT)}"


_DOT = "\N{ONE DOT LEADER}"


def to_dict(position: Position) -> dict[str, Any]:
    """The editable form: objects with `kind`, ready for JSON or YAML."""
    form: dict[str, Any] = {"kind": kind_of(position)}
    if isinstance(position, Number | Time):
        form |= {"mean": position.mean, "std": position.std}
    elif isinstance(position, Category):
        form["values"] = list(position.values)
    elif isinstance(position, Items):
        form["items"] = to_dict(position.items)
    elif isinstance(position, Fields):
        form["fields"] = {key: to_dict(inner) for key, inner in position.fields.items()}
    elif isinstance(position, Entries):
        form["values"] = to_dict(position.values)
    elif isinstance(position, Mixed):
        form["kinds"] = [to_dict(inner) for inner in position.kinds]
    return form


def from_dict(form: Any, path: str = "$") -> Position:
    """The position that an editable form describes.

    Args:
        form: what `to_dict` gives, or somebody wrote.
        path: where it is, for messages.

    Raises:
        ConfigError: with the place, if it is no such form.
    """
    if not isinstance(form, Mapping):
        raise ConfigError(f"the schema of records has {form!r} at {path}. Give it a kind.")
    kind = str(form.get("kind"))
    unknown = set(form) - {"kind", *_KEYS.get(kind, ())}
    if kind not in _KEYS or unknown:
        what = f"the key {sorted(map(str, unknown))[0]!r}" if kind in _KEYS else f"kind {kind!r}"
        raise ConfigError(
            f"the schema of records has {what} at {path}. The kinds are "
            + "; ".join(f"{name} ({', '.join(keys) or 'no keys'})" for name, keys in _KEYS.items())
            + "."
        )
    absent = [key for key in _KEYS[kind] if key not in form and kind not in ("number", "time")]
    if absent:
        raise ConfigError(f"the schema of records has a {kind} without '{absent[0]}' at {path}.")
    return _make(kind, form, path)


_KEYS: Mapping[str, tuple[str, ...]] = {
    "number": ("mean", "std"),
    "category": ("values",),
    "text": (),
    "time": ("mean", "std"),
    "address": (),
    "list": ("items",),
    "object": ("fields",),
    "map": ("values",),
    "mixed": ("kinds",),
}


def _make(kind: str, form: Mapping[str, Any], path: str) -> Position:
    if kind in ("number", "time"):
        scale = (_number(form.get(k, v), k, path) for k, v in (("mean", 0), ("std", 1)))
        return Number(*scale) if kind == "number" else Time(*scale)
    if kind == "category":
        return Category(tuple(_list(form["values"], "values", path, str | bool)))
    if kind in ("text", "address"):
        return Text() if kind == "text" else Address()
    if kind == "list":
        return Items(from_dict(form["items"], f"{path}[*]"))
    if kind == "map":
        return Entries(from_dict(form["values"], f"{path}{{*}}"))
    if kind == "mixed":
        kinds = tuple(from_dict(item, path) for item in _list(form["kinds"], "kinds", path))
        if any(isinstance(item, Mixed) for item in kinds):
            raise ConfigError(f"the schema of records has a mixed in a mixed at {path}. Join them.")
        return Mixed(kinds)
    if not isinstance(form["fields"], Mapping):
        raise ConfigError(f"the schema of records has {form['fields']!r} as fields at {path}.")
    fields = {str(k): from_dict(v, join_path(path, str(k))) for k, v in form["fields"].items()}
    return Fields(fields)


def _number(value: Any, key: str, path: str) -> float:
    number = finite_number(value)
    if number is None or (key == "std" and number <= 0):
        need = "a number above zero" if key == "std" else "a number"
        raise ConfigError(f"the schema of records has {key} {value!r} at {path}. Give {need}.")
    return number


def _list(value: Any, key: str, path: str, kind: Any = object) -> Sequence[Any]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not (is_list and value and all(isinstance(item, kind) for item in value)):
        raise ConfigError(f"the schema of records has {key} {value!r} at {path}. Give a list.")
    return value  # type: ignore[no-any-return]
