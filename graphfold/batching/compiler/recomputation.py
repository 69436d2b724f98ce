"""Recomputation: what backward computes again instead of reading what forward kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphfold.batching.compiler.values import EDGES, FETCHES, SOURCES, Value

#: What is there before a pass begins.
_NOTHING = ("count_edges", "integer", "fill")
#: What is as fast to compute as to read,
_CHEAP = (*_NOTHING, *FETCHES, "standardise")
#: and for edges, of which there are many, what a few of these operations make of that.
_CHEAP_OF_EDGES = ("add", "sub", "mul", "neg", "relu")
_A_FEW = 3


def is_cheap(value: Value, depth: int = _A_FEW) -> bool:
    """True if backward computes a value again, of operations on edges up to so many in a row."""
    if value.space == EDGES and value.operation in _CHEAP_OF_EDGES:
        inputs = [view.value for view in value.inputs]
        return depth > 0 and all(v.operation in SOURCES or is_cheap(v, depth - 1) for v in inputs)
    return value.operation in _CHEAP


def costs_nothing(value: Value) -> bool:
    """True if a value is read where it lies, or is one number."""
    return value.operation in _NOTHING


def placed_before_readers(again: Sequence[Value], values: Sequence[Value]) -> list[Value]:
    """Values with others among them, each of these where it is first needed, or at the end."""
    left, placed = dict.fromkeys(again), []

    def needed(value: Value) -> Iterator[Value]:
        for view in value.inputs:
            if view.value in left:
                del left[view.value]
                yield from needed(view.value)
                yield view.value

    for value in values:
        placed += [*needed(value), value]
    for value in again:
        if value in left:
            del left[value]
            placed += [*needed(value), value]
    return placed
