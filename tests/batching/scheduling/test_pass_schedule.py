"""PassSchedule: what it tells of one group, against a loop over rows and edges."""

from __future__ import annotations

import pytest
import torch
from engine_cells import chain, random_dag

from graphfold.batching import Down, Up, build_schedule

DAGS = {"random": random_dag(4, 3), "chain": chain(4)}


@pytest.fixture(params=DAGS)
def dag(request):
    return DAGS[request.param]


@pytest.fixture(params=[Up(), Down()])
def plan(request, dag):
    return build_schedule(dag, [request.param]).passes[0]


def test_the_edges_of_a_group_are_those_of_its_rows(plan):
    child_row, ptr = plan.child_row.tolist(), plan.child_ptr.tolist()
    for group in plan.groups:
        rows = range(group.start, group.stop)
        edges = [range(ptr[row - 1], ptr[row]) for row in rows]
        counts = torch.tensor([len(own) for own in edges])
        assert (group.size, group.num_edges) == (len(rows), int(counts.sum()))
        assert torch.equal(plan.group_ptr(group).diff(), counts)
        assert int(plan.group_ptr(group)[0]) == 0
        parents = [position for position, own in enumerate(edges) for _ in own]
        assert plan.group_parent(group).tolist() == parents
        read = [child_row[edge] for own in edges for edge in own]
        assert plan.group_child_row(group).tolist() == read


def test_a_copy_on_a_device_asks_the_plan_on_the_cpu(plan):
    there = plan.map_tensors(lambda tensor: tensor.to("meta"))  # whose numbers nobody can read
    for name in ("parent", "reader", "reader_ptr", "child_positions"):
        assert getattr(there, name).is_meta
        assert getattr(there, name).shape == getattr(plan, name).shape
    for op_type in (*plan.types, 99):
        assert there.rows_of_type(op_type).shape == plan.rows_of_type(op_type).shape
    assert there.routes.counts == plan.routes.counts
    for part in ("index", "by_row", "order"):
        found, known = getattr(there.routes, part), getattr(plan.routes, part)
        assert {n: rows.shape for n, rows in found.items()} == {
            n: r.shape for n, r in known.items()
        }


def test_the_slices_of_a_group_name_its_nodes(plan, dag):
    for group in plan.groups:
        nodes = plan.node[group.positions]
        assert torch.equal(plan.row[nodes], torch.arange(plan.num_rows + 1)[group.rows])
        first = plan.types[group.op_type].start
        own = slice(group.start - first, group.stop - first)
        order = plan.type_order[group.op_type]
        of_type = (dag.op_type == group.op_type).nonzero().squeeze(1)
        of_type = of_type if order is None else of_type[order.rows]
        assert torch.equal(of_type[own], nodes)


def test_rows_are_sorted_by_type_and_then_in_the_order_of_the_groups(plan, dag):
    row = 1
    for op_type, whole in plan.types.items():
        for group in plan.groups:
            if group.op_type == op_type:
                assert group.start == row
                row = group.stop
        assert (whole.stop, whole.size) == (row, int((dag.op_type == op_type).sum()))
        assert torch.equal(
            plan.rows_of_type(op_type).sort().values, torch.arange(plan.num_rows + 1)[whole.rows]
        )
        assert plan.child_ptr[whole.start - 1] == whole.edge_start
        assert plan.child_ptr[whole.stop - 1] == whole.edge_stop
    assert row == plan.num_rows + 1
    assert [*plan.types] == sorted(set(dag.op_type.tolist()))
