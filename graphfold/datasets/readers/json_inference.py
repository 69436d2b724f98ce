"""Positions: what stands at each place of JSON records, inferred from a sample, for people to edit.

A place is one of: a number, a category, text, a time, an IP address, a list whose items are alike,
an object with known keys, a map whose keys are data, or several of these.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graphfold.datasets.readers.json_documents import finite_number, join_path
from graphfold.errors import ConfigError

#: A date, with or without a time of day: ISO 8601 as RFC 3339 has it, or with a blank for the T.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?")

#: The bits of an address that are features: all of IPv4, of IPv6 the network.
ADDRESS_BITS = 64

#: Features of an address beside its bits: version, and what RFC 6890 reserves it for.
ADDRESS_FACTS = 5

#: Features of a time beside the seconds: sine and cosine of the hour and of the day of the week.
TIME_FACTS = 4

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_time(text: str) -> float | None:
    """Seconds since 1970, of a time without a zone as if it were UTC; None if it is no time."""
    if not _TIME.fullmatch(text):
        return None
    text = text.replace(",", ".").replace("Z", "+00:00")
    head, dot, fraction = text.partition(".")
    if dot:  # Python 3.10 wants six digits
        digits = re.match(r"\d+", fraction)
        assert digits is not None
        text = f"{head}.{digits[0][:6]:0<6}{fraction[digits.end() :]}"
    try:
        time = datetime.fromisoformat(_with_colon(text))
    except ValueError:  # the 31st of June
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def _with_colon(text: str) -> str:
    """The text with a colon in its zone, which Python 3.10 wants."""
    return re.sub(r"(:.*[+-]\d\d)(\d\d)$", r"\1:\2", text)


def read_address(text: str) -> IPAddress | None:
    """The address that a text is; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def time_features(seconds: float, mean: float, std: float) -> dict[str, Any]:
    """The features of a time: standardised, and where in the day and in the week it lies (UTC)."""
    day = seconds / 86_400 % 1.0
    week = (seconds / 86_400 + 3) % 7 / 7  # the first of January 1970 was a Thursday
    angles = (2 * math.pi * day, 2 * math.pi * week)
    cycle = [f(angle) for angle in angles for f in (math.sin, math.cos)]
    return {"value": min(max((seconds - mean) / std, -10.0), 10.0), "cycle": cycle}


def address_features(address: IPAddress) -> dict[str, Any]:
    """The features of an address: its leading bits, version, and whether it is a special one.

    Addresses of one network share their leading bits.
    """
    size = address.max_prefixlen
    bits = [float(bit) for bit in f"{int(address):0{size}b}"[:ADDRESS_BITS]]
    facts = (
        address.version == 6,
        address.is_private,
        address.is_loopback,
        address.is_multicast,
        address.is_reserved or address.is_link_local or address.is_unspecified,
    )
    return {
        "bits": bits + [0.0] * (ADDRESS_BITS - len(bits)),
        "facts": [float(fact) for fact in facts],
    }


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


T = TypeVar("T")

#: A string with so many different values at most, each seen twice on average, is a category.
MOST_CATEGORIES = 100

#: An object with more different keys over all records is a map whose keys are data.
MOST_KEYS = 64

#: What is nested deeper is read as the text of its JSON.
DEEPEST = 32


class Gathered:
    """All values that the sample has at one place, by kind.

    Args:
        depth: how many lists and objects are around it.
    """

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.numbers: list[float] = []
        self.strings: dict[str | bool, int] = {}
        self.keys: dict[str, Gathered] = {}
        self.items: Gathered | None = None
        self.kinds: dict[str, int] = {}

    def add(self, value: Any) -> None:
        """Notes one value; null is no value."""
        kind = json_kind(value, self.depth)
        if kind == "null":
            return
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == "number":
            self.numbers.append(to_float(value))
        elif kind in ("string", "bool"):
            text = value if isinstance(value, str | bool) else ""
            self.strings[text] = self.strings.get(text, 0) + 1
        elif kind == "list":
            if self.items is None:
                self.items = Gathered(self.depth + 1)
            for item in value:
                self.items.add(item)
        else:
            for key, inner in value.items():
                self.keys.setdefault(key, Gathered(self.depth + 1)).add(inner)

    def position(self) -> Position:
        """The position that suits all values; text where there were none."""
        found = [self._of_kind(kind) for kind in sorted(self.kinds)]
        if not found:
            return Text()
        return found[0] if len(found) == 1 else Mixed(tuple(found))

    def _of_kind(self, kind: str) -> Position:
        if kind == "number":
            return Number(*_standardise(self.numbers))
        if kind == "list":
            return Items((self.items or Gathered()).position())
        if kind == "object":
            return self._object()
        if kind == "bool":
            return Category((False, True))
        strings = {v: n for v, n in self.strings.items() if isinstance(v, str)}
        if len(strings) <= MOST_CATEGORIES and sum(strings.values()) >= 2 * len(strings):
            return Category(tuple(sorted(strings)))
        return _of_texts(strings)

    def _object(self) -> Position:
        if len(self.keys) <= MOST_KEYS and not _are_numbered(self.keys):
            return Fields({key: self.keys[key].position() for key in sorted(self.keys)})
        together = Gathered(self.depth + 1)
        for inner in self.keys.values():
            together.join(inner)
        return Entries(together.position())

    def join(self, other: Gathered) -> None:
        """Adds the values of another place."""
        self.numbers += other.numbers
        for text, count in other.strings.items():
            self.strings[text] = self.strings.get(text, 0) + count
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for key, inner in other.keys.items():
            self.keys.setdefault(key, Gathered(inner.depth)).join(inner)
        if other.items is not None:
            self.items = self.items or Gathered(other.items.depth)
            self.items.join(other.items)


def infer_positions(records: Iterable[Any]) -> Position:
    """The position of the root, from a sample of records.

    A category is a string that repeats (see `MOST_CATEGORIES`); other strings that are all times,
    or all IP addresses, are such. An object with very many keys a map
    (see `MOST_KEYS`), and so is one whose keys differ in their digits alone. Where values of
    several kinds stand, the place is mixed. Keys are in alphabetical order, so the order of the
    records does not matter.

    Numbers and times are standardised by mean and deviation, without what lies far outside: one
    value of 1e300 would make all others alike.
    """
    root = Gathered()
    for record in records:
        root.add(record)
    return root.position()


def _are_numbered(keys: Collection[str]) -> bool:
    """True for keys such as step1, step2, which are the places of a list."""
    patterns = {re.sub(r"\d+", "0", key) for key in keys}
    return len(keys) > 1 and len(patterns) == 1


def json_kind(value: Any, depth: int) -> str:
    """The kind of a JSON value at a depth: null, bool, number, string, list or object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str) or depth >= DEEPEST:
        return "string"
    return "object" if isinstance(value, Mapping) else "list"


def to_float(value: float) -> float:
    """A JSON number as a finite float; integers beyond its range become the largest float."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    return min(max(number, -_LARGEST), _LARGEST)


_LARGEST = 1e30  # its square is still a float


#: Values farther from the middle half than so many times its width are moved to there.
FAR = 10.0


def _standardise(numbers: list[float]) -> tuple[float, float]:
    """Mean and deviation of numbers, those far outside moved nearer; the deviation is not 0."""
    lower, middle, upper = np.quantile(numbers, (0.25, 0.5, 0.75), method="nearest").tolist()
    width = upper - lower
    if width == 0:  # half of them are equal: the others say what is near
        others = [abs(number - middle) for number in numbers if number != middle]
        width = float(np.quantile(others, 0.5, method="lower")) if others else 0.0
    near = np.clip(numbers, lower - FAR * width, upper + FAR * width)
    return float(near.mean()), float(near.std()) or 1.0


def _of_texts(texts: Iterable[str]) -> Position:
    """A time or an address if all the different strings are such, else text."""
    texts = list(texts)
    times = _all_read(read_time, texts)
    if times:
        return Time(*_standardise(times))
    return Address() if _all_read(read_address, texts) else Text()


def _all_read(read: Callable[[str], T | None], texts: Sequence[str]) -> list[T]:
    """The values of all texts; none if one of them cannot be read."""
    found: list[T] = []
    for text in texts:
        value = read(text)
        if value is None:
            return []
        found.append(value)
    return found
