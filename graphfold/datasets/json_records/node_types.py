"""Node types of JSON records: one for each place, and the features of its leaves."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from graphfold.dag import Column, NodeType
from graphfold.datasets.json_records.inference import to_float
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
    children,
)
from graphfold.datasets.json_records.times_and_addresses import (
    ADDRESS_BITS,
    ADDRESS_FACTS,
    TIME_FACTS,
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
