"""Stages: the parts of a program before and after each mean over a group.

All blocks of a group end a stage before one of them begins the next. Scratch memory does not last
so long: what a later stage reads lies in a buffer of the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphfold.batching.compiler.values import GROUP, MEAN_OF_GROUP, Value


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
