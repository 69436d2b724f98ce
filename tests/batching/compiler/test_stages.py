"""Stages: nothing is read before it is computed, and what later stages read lasts."""

from __future__ import annotations

import pytest

from graphfold.batching.compiler.operations import EXP, MUL, PREVIOUS, SUB
from graphfold.batching.compiler.stages import known_in, lasting, stages_of
from graphfold.batching.compiler.values import NODES, Value, ValueBuilder, View


def built(first: str) -> tuple[ValueBuilder, View]:
    """A value made of a buffer alone, which is read before a mean is known and after."""
    to, given = ValueBuilder(None), Value(PREVIOUS, NODES, (3,), name="h").view
    rests, mean = to.copy(given), to.mean_of_group(to.apply(EXP, given))
    for name in ("late", "early") if first == "late" else ("early", "late"):
        to.apply(MUL, rests, mean if name == "late" else 2.0)
    return to, rests


@pytest.mark.parametrize("first", ["early", "late"])
def test_nothing_is_read_before_it_is_computed(first):
    to, rests = built(first)
    stages = stages_of(to.values)
    for value in to.values:
        assert all(known_in(view.value, stages) <= stages[value] for view in value.inputs)
    assert lasting(to.values) == [rests.value]


def test_what_only_a_later_stage_reads_waits_for_it():
    to, given = ValueBuilder(None), Value(PREVIOUS, NODES, (3,), name="h").view
    rests, mean = to.copy(given), to.mean_of_group(to.apply(EXP, given))
    to.apply(SUB, rests, mean)
    assert stages_of(to.values)[rests.value] == 1
    assert lasting(to.values) == []
