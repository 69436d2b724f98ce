"""The nodes of a JSON record, inner ones first: a type for each place, features of its leaves."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphfold.dag import Column, GraphBuilder, NodeType
from graphfold.datasets.readers.json_inference import (
    ADDRESS_BITS,
    ADDRESS_FACTS,
    TIME_FACTS,
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
    address_features,
    children,
    json_kind,
    name_in_mixed,
    place_of_key,
    read_address,
    read_time,
    time_features,
    to_float,
)

#: Character trigrams are counted in so many buckets.
BUCKETS = 128


def node_types(root: Position) -> tuple[NodeType, ...]:
    """A node type for each place of a record, `$` is the root, `$/user/name` a key of a key.

    - a number: its standardised `value`, and `log`, sign and logarithm, which survives outliers;
    - a category: its `code`; the last one is for values that the sample lacks;
    - text: `trigrams`, and `length` as a logarithm;
    - a time: its standardised `value`, and `cycle`, the hour and the day of the week;
    - an IP address: its leading `bits`, and `facts`: the version, and whether it is a special one;
    - a list: any number of inputs, its items, and its `length` as a logarithm;
    - an object: an input for each key, in order; absent where the key is;
    - a map: any number of inputs, PATH{entry}: a key (PATH{key}, as text) and its value; and
      `length`.

    A mixed place has a type for each kind, PATH:KIND.
    """
    found: list[NodeType] = []
    stack = [("$", root)]
    while stack:
        path, position = stack.pop()
        stack += reversed([*children(position, path)])
        if isinstance(position, Number):
            found.append(NodeType(path, 0, (Column("value"), Column("log"))))
        elif isinstance(position, Category):
            size = len(position.values) + 1
            found.append(NodeType(path, 0, (Column("code", "int64", size=size),)))
        elif isinstance(position, Text):
            found.append(NodeType(path, 0, _TEXT))
        elif isinstance(position, Time):
            found.append(NodeType(path, 0, (Column("value"), Column("cycle", shape=(TIME_FACTS,)))))
        elif isinstance(position, Address):
            found.append(NodeType(path, 0, _ADDRESS))
        elif isinstance(position, Fields):
            found.append(NodeType(path, len(position.fields)))
        elif isinstance(position, Items):
            found.append(NodeType(path, None, (_LENGTH,)))
        elif isinstance(position, Entries):
            found.append(NodeType(path, None, (_LENGTH,)))
            found.append(NodeType(f"{path}{{entry}}", 2))
            found.append(NodeType(f"{path}{{key}}", 0, _TEXT))
        else:
            assert isinstance(position, Mixed)
    return tuple(found)


_LENGTH = Column("length")
_TEXT = (Column("trigrams", shape=(BUCKETS,)), _LENGTH)
_ADDRESS = (Column("bits", shape=(ADDRESS_BITS,)), Column("facts", shape=(ADDRESS_FACTS,)))


def number_features(position: Number, value: float) -> dict[str, Any]:
    """The features of a number."""
    number = to_float(value)
    standard = (number - position.mean) / position.std
    return {
        "value": min(max(standard, -10.0), 10.0),
        "log": math.copysign(math.log1p(abs(number)), number),
    }


def text_features(text: str) -> dict[str, Any]:
    """The features of a string: its trigrams, hashed and counted, and its length.

    The counts are a vector of length 1.

    Its two ends count as characters, so that a string of one character has a trigram.
    """
    padded = f"\x02{text}\x03".encode("utf-8", "surrogatepass")
    count = max(len(padded) - 2, 1)
    buckets = [zlib.crc32(padded[begin : begin + 3]) % BUCKETS for begin in range(count)]
    counts = np.bincount(buckets, minlength=BUCKETS).astype(np.float32)
    return {"trigrams": counts / np.linalg.norm(counts), "length": math.log1p(len(text))}


_KINDS: Mapping[type, str] = {Number: "number", Items: "list", Fields: "object", Entries: "object"}


class RecordWriter:
    """Writes one record into a graph.

    Args:
        graph: the unfinished graph.

    Attributes:
        unseen: how many keys and values the schema had no place for.
    """

    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph
        self.unseen = 0

    def write(self, value: Any, position: Position, path: str = "$", depth: int = 0) -> int | None:
        """Adds the nodes of a value; returns the last one, or None where nothing can be read."""
        kind = json_kind(value, depth)
        if kind == "null":
            return None
        if isinstance(position, Mixed):
            fitting = [p for p in position.kinds if _fits(p, kind)]
            if not fitting:
                self.unseen += 1
                return None
            position = fitting[0]
            path = f"{path}:{name_in_mixed(position)}"
        elif not _fits(position, kind):
            self.unseen += 1
            return None
        if isinstance(position, Items):
            items = [self.write(item, position.items, f"{path}[*]", depth + 1) for item in value]
            kept = [item for item in items if item is not None]
            return self.graph.node(path, kept, length=math.log1p(len(value)))
        if isinstance(position, Fields):
            return self._fields(value, position, path, depth)
        if isinstance(position, Entries):
            return self._entries(value, position, path, depth)
        return self._leaf(value, position, path)

    def _leaf(self, value: Any, position: Position, path: str) -> int | None:
        if isinstance(position, Number):
            return self.graph.node(path, **number_features(position, value))
        if isinstance(position, Category):
            known = position.values
            is_known = isinstance(value, str | bool) and value in known
            self.unseen += not is_known
            return self.graph.node(path, code=known.index(value) if is_known else len(known))
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(position, Text):
            return self.graph.node(path, **text_features(text))
        features = _features_of_kind(text, position)
        if features is None:
            self.unseen += 1
            return None
        return self.graph.node(path, **features)

    def _fields(self, value: Mapping[str, Any], position: Fields, path: str, depth: int) -> int:
        self.unseen += sum(key not in position.fields for key in value)
        inputs = [
            self.write(value.get(key), inner, place_of_key(path, key), depth + 1)
            for key, inner in position.fields.items()
        ]
        return self.graph.node(path, inputs)

    def _entries(self, value: Mapping[str, Any], position: Entries, path: str, depth: int) -> int:
        entries = []
        for key, item in value.items():
            name = self.graph.node(f"{path}{{key}}", **text_features(key))
            inner = self.write(item, position.values, f"{path}{{*}}", depth + 1)
            entries.append(self.graph.node(f"{path}{{entry}}", (name, inner)))
        return self.graph.node(path, entries, length=math.log1p(len(value)))


def _features_of_kind(text: str, position: Position) -> dict[str, Any] | None:
    """The features of a time or an address; None of a text that is none."""
    if isinstance(position, Time):
        seconds = read_time(text)
        return None if seconds is None else time_features(seconds, position.mean, position.std)
    address = read_address(text)
    return None if address is None else address_features(address)


def _fits(position: Position, kind: str) -> bool:
    if isinstance(position, Text | Time | Address):
        return kind == "string"
    if isinstance(position, Category):
        is_bool = isinstance(position.values[0], bool)
        return kind == ("bool" if is_bool else "string")
    return _KINDS[type(position)] == kind
