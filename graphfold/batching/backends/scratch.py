"""Scratch memory: which values need some, and where they lie while a block of rows needs them.

Some values need none, since they are computed where another is computed from them: an elementwise
operation reads rows of others where they lie, instead of copies of them, and a product adds other
rows to its sums, and applies relu to them, before it writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphfold.batching.compiler.operations import ADD, RELU
from graphfold.batching.compiler.values import (
    COPIED,
    EDGES,
    NODES,
    OF_GROUP,
    ON_ROWS,
    PRODUCT,
    SINK,
    Value,
    View,
)

#: Values that have no memory of their own.
Fused: TypeAlias = Collection[Value]

#: What does not read one row at a time, number by number.
_NOT_ELEMENTWISE = (ON_ROWS, PRODUCT, SINK, OF_GROUP)


def fuse(values: Sequence[Value], places: Container[Value]) -> Fused:
    """The values that are fused into their only reader.

    Args:
        values: in the order in which they are computed.
        places: those that lie in buffers of the pass.
    """
    times = Counter(view.value for value in values for view in value.inputs)
    fused: set[Value] = set()
    for value in values:
        own = [view for view in value.inputs if times[view.value] == 1]
        own = [v for v in own if v.value not in places and v.space == v.value.space == value.space]
        ended = next((view for view in own if _ends(value, view, fused)), None)
        if ended is not None:
            fused.add(ended.value)
        elif value.operation.kind not in _NOT_ELEMENTWISE:
            fused.update(view.value for view in own if view.value.operation.kind == COPIED)
    return fused


def _ends(value: Value, view: View, fused: Fused) -> bool:
    """True if a value adds a row to a product, or is relu of a product or of that."""
    source, shape = view.value, value.shape
    if value.operation not in (ADD, RELU) or not view.is_all or view.shape != shape:
        return False
    if value.operation is ADD:
        others = [other for other in value.inputs if other is not view]
        is_row = all(x.space == value.space and x.is_contiguous for x in others)
        return source.operation.kind == PRODUCT and is_row
    return product_of(source, fused) is not None


def product_of(value: Value, fused: Fused) -> Value | None:
    """The product that is computed with a value: itself, or one that is fused into it."""
    if value.operation.kind == PRODUCT:
        return value
    own = [view.value for view in value.inputs if view.value in fused]
    if value.operation is RELU:
        return next((found for source in own if (found := product_of(source, fused))), None)
    return next((source for source in own if source.operation.kind == PRODUCT), None)


def reads(value: Value, fused: Fused) -> Iterator[Value]:
    """The values that are read where a value is computed."""
    for view in value.inputs:
        if view.value in fused:
            yield from reads(view.value, fused)
        else:
            yield view.value


@dataclass(frozen=True)
class Scratch:
    """Places in scratch memory.

    Args:
        places: value -> how many numbers per row lie before it.
        sizes: how many numbers it takes per node, and per edge.
    """

    places: Mapping[Value, int]
    sizes: tuple[int, int]


def allocate(values: Sequence[Value], elsewhere: Container[Value], fused: Fused) -> Scratch:
    """Finds a place for each value: the first gap that is large enough.

    Args:
        values: in the order in which they are computed.
        elsewhere: those that lie in buffers of the pass.
        fused: those that lie nowhere.
    """
    last = {read: at for at, value in enumerate(values) for read in reads(value, fused)}
    live: dict[str, list[tuple[int, int, Value]]] = {NODES: [], EDGES: []}
    places: dict[Value, int] = {}
    for at, value in enumerate(values):
        if value in elsewhere or value in fused or value.operation.kind == SINK:
            continue
        own = live[value.space]
        own[:] = [piece for piece in own if last.get(piece[2], -1) >= at]
        places[value] = _first_gap(own, value.size)
        own.append((places[value], places[value] + value.size, value))
    ends = {NODES: 0, EDGES: 0}
    for value, start in places.items():
        ends[value.space] = max(ends[value.space], start + value.size)
    return Scratch(places, (ends[NODES], ends[EDGES]))


def _first_gap(pieces: Sequence[tuple[int, int, Value]], size: int) -> int:
    """The start of the first gap between pieces that is large enough."""
    start = 0
    for begin, end, _ in sorted(pieces, key=lambda piece: piece[:2]):
        if begin - start >= size:
            break
        start = max(start, end)
    return start
