"""Scratch memory: the places of values that only a block of rows needs, while it needs them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from graphfold.batching.backends.fusion import Fused, reads
from graphfold.batching.compiler.values import EDGES, NODES, SINK, Value


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
