"""Readers of groups: just those edges of the plan that read their rows."""

from __future__ import annotations

import pytest
from engine_cells import random_dag

from graphfold.batching import Up, build_schedule
from graphfold.batching.engine.group_readers import GroupReaders


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_readers_of_every_row(seed, share):
    dag = random_dag(4, seed)
    (plan,) = build_schedule(dag, [Up()], share=share).passes
    readers = GroupReaders(plan)
    child_row = plan.child_row.tolist()
    seen: list[int] = []
    for group in plan.groups:
        edges, rows = readers.edges(group).tolist(), readers.rows(group).tolist()
        ptr = readers.ptr(group).tolist()
        assert readers.ptr(group) is readers.ptr(group)  # found once for all fields
        assert (ptr[0], ptr[-1]) == (0, group.num_read)
        for row, begin, end in zip(range(group.start, group.stop), ptr[:-1], ptr[1:], strict=True):
            found = [edge - 1 for edge in edges[begin:end]]
            assert sorted(found) == [e for e, child in enumerate(child_row) if child == row]
            for edge, reader in zip(found, rows[begin:end], strict=True):
                ends = plan.child_ptr.tolist()
                assert ends[reader] <= edge < ends[reader + 1]
        seen += edges
    absent = [e + 1 for e, child in enumerate(child_row) if child == 0]
    assert sorted(readers.all_edges[: readers.num_absent].tolist()) == absent
    assert sorted(seen + absent) == list(range(1, len(child_row) + 1))
