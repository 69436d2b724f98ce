"""States in parts by type equal joined states."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from strategies import MIXED_SCHEMA, dags

from graphfold.batching import Rounds, build_schedule
from graphfold.batching.engine.typed_fields import TypedFields
from graphfold.batching.kernels.gather import RowIndex


@settings(max_examples=10)
@given(dag=dags(MIXED_SCHEMA))
def test_splitting_and_joining_give_the_same(dag):
    plan = build_schedule(dag, [Rounds("next", 1)]).passes[0]
    whole = {"h": torch.randn(dag.num_nodes + 1, 3), "c": torch.randn(dag.num_nodes + 1, 2)}
    fields = TypedFields.split(plan, whole, dict.fromkeys(plan.types, frozenset(whole)))
    assert dict(fields).keys() == whole.keys()
    rows = torch.randint(1, dag.num_nodes + 1, (5,))
    for name, values in whole.items():
        assert torch.equal(fields[name], values)
        actual, row = fields.find(name, RowIndex(rows))
        assert torch.equal(actual[row.rows], values[rows])
        parts = [fields.part(name, group.op_type) for group in plan.groups]
        assert torch.equal(torch.cat(parts), values[1:])


@settings(max_examples=10)
@given(dag=dags(MIXED_SCHEMA))
def test_a_field_of_one_type_is_zero_elsewhere_and_read_where_it_lies(dag):
    plan = build_schedule(dag, [Rounds("next", 1)]).passes[0]
    group = plan.groups[-1]
    part = torch.randn(group.stop - group.start, 2)
    fields = TypedFields(plan, {}, {}).join(group.op_type, {"h": part}, {"h": part.new_zeros(1, 2)})
    rows = torch.arange(group.start, group.stop)
    actual, row = fields.find("h", RowIndex(rows))
    assert actual is part
    assert row.rows.equal(torch.arange(len(part)))
    every = RowIndex(torch.arange(1, dag.num_nodes + 1))
    there = every.map_tensors(lambda rows: rows.to("meta"))
    assert (fields.find("h", there)[0] is part) == (len(plan.groups) == 1)  # the CPU is asked
    assert fields["h"][rows].equal(part)
    assert fields["h"].count_nonzero() == part.count_nonzero()
    assert fields["h"].shape == (dag.num_nodes + 1, 2)
    with pytest.raises(KeyError):
        fields["c"]
