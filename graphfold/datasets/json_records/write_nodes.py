"""Writes the nodes of one JSON record, inner ones first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from graphfold.dag import GraphBuilder
from graphfold.datasets.json_records.inference import json_kind
from graphfold.datasets.json_records.node_types import number_features, text_features
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
    name_in_mixed,
    place_of_key,
)
from graphfold.datasets.json_records.times_and_addresses import (
    address_features,
    read_address,
    read_time,
    time_features,
)

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
