"""Infers the positions of records from a sample of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from graphfold.datasets.json_records.positions import (
    Address,
    Category,
    Entries,
    Fields,
    Items,
    Mixed,
    Number,
    Position,
    Text,
    Time,
)
from graphfold.datasets.json_records.times_and_addresses import read_address, read_time

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
