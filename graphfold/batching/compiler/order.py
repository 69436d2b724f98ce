"""Order: what backward computes again instead of reading what forward kept of it, and stages.

Stages are the parts of a program before and after each mean over a group. All blocks of a group end
a stage before one of them begins the next. Scratch memory does not last so long: what a later stage
reads lies in a buffer of the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphfold.batching.compiler.values import (
    EDGES,
    GIVEN,
    GROUP,
    LITTLE,
    LITTLE_OF_EDGES,
    MEAN_OF_GROUP,
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
    left, placed = set(again), list[Value]()

    def place(value: Value) -> None:
        left.discard(value)
        for view in value.inputs:
            if view.value in left:
                place(view.value)
        placed.append(value)

    for value in values:
        place(value)
    for value in again:
        if value in left:
            place(value)
    return placed


def stages_of(values: Sequence[Value]) -> dict[Value, int]:
    """The stage in which each of some values, in order, is computed.

    As early as can be; but what is computed from buffers alone waits until it is read.
    """
    found: dict[Value, int] = {}
    read_in: dict[Value, int] = {}
    for value in values:
        found[value] = max((known_in(view.value, found) for view in value.inputs), default=0)
        for view in value.inputs:
            read_in[view.value] = min(read_in.get(view.value, found[value]), found[value])
    for value, first in read_in.items():
        rests = all(view.value not in found or view.space == GROUP for view in value.inputs)
        if value in found and rests and value.operation is not MEAN_OF_GROUP:
            found[value] = max(found[value], first)
    return found


def known_in(value: Value, stages: Mapping[Value, int]) -> int:
    """The first stage in which a value can be read; 0 for values that are given."""
    return stages.get(value, 0) + (value.operation is MEAN_OF_GROUP and value in stages)


def lasting(values: Sequence[Value]) -> list[Value]:
    """The values, in order, that later stages read."""
    stages = stages_of(values)
    read_in: dict[Value, int] = {}
    for value in values:
        for view in value.inputs:
            read_in[view.value] = max(read_in.get(view.value, 0), stages[value])
    return [v for v in values if v.space != GROUP and read_in.get(v, 0) > known_in(v, stages)]
