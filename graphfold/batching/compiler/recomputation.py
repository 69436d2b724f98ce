"""Recomputation: what backward computes again instead of reading what forward kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphfold.batching.compiler.values import (
    EDGES,
    GIVEN,
    LITTLE,
    LITTLE_OF_EDGES,
    NOTHING,
    Value,
)

#: How many operations on edges in a row are as fast to compute as to read what they give.
_A_FEW = 3


def is_cheap(value: Value, depth: int = _A_FEW) -> bool:
    """True if backward computes a value again, of operations on edges up to so many in a row."""
    if value.space == EDGES and value.operation.cost == LITTLE_OF_EDGES:
        inputs = [view.value for view in value.inputs]
        return depth > 0 and all(
            v.operation.kind == GIVEN or is_cheap(v, depth - 1) for v in inputs
        )
    return value.operation.cost in (NOTHING, LITTLE)


def costs_nothing(value: Value) -> bool:
    """True if a value is read where it lies, or is one number."""
    return value.operation.cost == NOTHING


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
